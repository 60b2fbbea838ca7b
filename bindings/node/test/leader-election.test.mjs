// The drop-in for the heartbeat table, on real PostgreSQL: by `pg`, and by the real supabase-js.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";

import { createClient } from "@supabase/supabase-js";
import pg from "pg";
import { LeaderElection, runIfLeader } from "tenure/compat/leader-election";

import { startPostgrest } from "./postgrest.mjs";
import { consoleOf, makeDatabase, sleep, unique, until, withPostgres } from "./support.mjs";

let upgraded, old, servers, pools;

before(async () => {
  if (withPostgres.skip) return;
  [upgraded, old] = [await makeDatabase(true), await makeDatabase(false)];
  servers = { new: await startPostgrest(upgraded.url), old: await startPostgrest(old.url) };
  pools = { new: new pg.Pool({ connectionString: upgraded.url }), old: new pg.Pool({ connectionString: old.url }) };
});

after(async () => {
  if (withPostgres.skip) return;
  for (const one of [...Object.values(servers)]) await one.stop();
  for (const pool of Object.values(pools)) await pool.end();
  await upgraded.drop();
  await old.drop();
});

class NoSocket {
  close() {}
}

function client(kind, age) {
  if (kind === "pg") return pools[age];
  // Nothing here listens to changes; Node 20 has no WebSocket of its own.
  const realtime = { transport: NoSocket };
  return createClient(servers[age].url, "key", { auth: { persistSession: false }, realtime });
}

const config = (serviceName, more = {}) => ({
  serviceName, candidateId: "same-id", heartbeatIntervalMs: 900, heartbeatTimeoutSeconds: 3, ...more,
});

for (const kind of ["pg", "supabase"]) {
  for (const age of ["new", "old"]) {
    test(`one leads and hands over: ${kind}, ${age} functions`, withPostgres, async () => {
      const service = unique("jobs");
      const [first, second] = [1, 2].map(() => new LeaderElection(client(kind, age), config(service)));
      const said = await consoleOf(async () => {
        await first.start();
        await second.start();
        assert.deepEqual([first.isCurrentLeader(), second.isCurrentLeader()], [true, false]);
        assert.equal(first.term, age === "new" ? 1 : null);
        await first.stop();
        assert.equal(first.isCurrentLeader(), false);
        await until(() => second.isCurrentLeader());
        await sleep(3_200);
        assert.equal(second.isCurrentLeader(), true, "it is renewed");
        await first.start();
        assert.deepEqual([first.isCurrentLeader(), second.isCurrentLeader()], [false, true]);
        await second.stop();
        await first.stop();
      });
      const warnings = said.filter((words) => words.includes("tenure migrate --store"));
      assert.equal(warnings.length, age === "new" ? 0 : 2, "one for each instance");
    });
  }
}

test("the row names the incarnation", withPostgres, async () => {
  const service = unique("jobs");
  const election = new LeaderElection(pools.new, config(service));
  await election.start();
  const sql = "SELECT leader_id, term FROM leader_election WHERE service_name = $1";
  const { rows } = await pools.new.query(sql, [service]);
  assert.match(rows[0].leader_id, /^same-id#[0-9a-f]{32}$/);
  assert.equal(rows[0].term, election.term);
  await election.stop();
});

test("a request that hangs is aborted, and trust ends by itself", withPostgres, async () => {
  const server = await startPostgrest(upgraded.url);
  const realtime = { transport: NoSocket };
  const supabase = createClient(server.url, "key", { auth: { persistSession: false }, realtime });
  const told = [];
  const election = new LeaderElection(supabase, config(unique("jobs"), {
    heartbeatTimeoutSeconds: 2, onLoseLeadership: () => void told.push("lost"),
  }));
  const said = await consoleOf(async () => {
    await election.start();
    assert.equal(election.isCurrentLeader(), true);
    server.state.hangs = true;
    await until(() => !election.isCurrentLeader());
    await until(() => told.length === 1);
    server.state.hangs = false;
    await until(() => election.isCurrentLeader());
    await election.stop();
  });
  assert.ok(said.some((words) => words.includes("is unknown")));
  assert.deepEqual(told, ["lost", "lost"]);
  await server.stop();
});

/** A pool that does what it is told. */
class Stand {
  constructor() {
    Object.assign(this, { holder: "", term: 0, calls: [], fails: null });
  }

  async query(sql, [, who]) {
    const verb = /FROM (\w+)/.exec(sql)[1];
    this.calls.push(verb);
    if (this.fails) throw this.fails;
    if (verb === "tenure_try_lead") {
      if (this.holder !== "" && this.holder !== who) return { rows: [{ granted: false, term: this.term, remaining_ms: 500 }] };
      this.term += this.holder === "" ? 1 : 0;
      this.holder = who;
      return { rows: [{ granted: true, term: this.term, remaining_ms: 1000 }] };
    }
    const held = this.holder === who;
    if (verb === "tenure_renew") return { rows: [{ granted: held, term: this.term, remaining_ms: 500 }] };
    if (held) this.holder = "";
    return { rows: [{ tenure_release: held }] };
  }
}

test("start waits for the become callback, and renewals do not", async () => {
  const db = new Stand();
  let isDone = false;
  const election = new LeaderElection(db, config("jobs", {
    onBecomeLeader: async () => {
      await until(() => db.calls.filter((verb) => verb === "tenure_renew").length >= 2);
      isDone = true;
    },
  }));
  await election.start();
  assert.equal(isDone, true);
  await election.stop();
});

test("the lease is given back after the loss callback, and never by one that hangs", async () => {
  const db = new Stand();
  const seen = [];
  const election = new LeaderElection(db, config("jobs", {
    onLoseLeadership: async () => {
      await sleep(50);
      seen.push(db.holder !== "", db.calls.includes("tenure_release"), election.isCurrentLeader());
    },
  }));
  await election.start();
  await election.stop();
  assert.deepEqual(seen, [true, false, false]);
  assert.equal(db.holder, "");

  const stuck = new Stand();
  const hangs = new LeaderElection(stuck, config("jobs", { onLoseLeadership: () => new Promise(() => {}) }));
  await consoleOf(async () => {
    await hangs.start();
    const began = performance.now();
    await hangs.stop();
    assert.ok(performance.now() - began < 1_500, "a sixth of the timeout, on a busy machine");
  });
  assert.ok(!stuck.calls.includes("tenure_release"), "it runs out");
});

test("callbacks that throw and errors of the database end nothing", async () => {
  const db = new Stand();
  const election = new LeaderElection(db, config("jobs", {
    heartbeatTimeoutSeconds: 1,
    onBecomeLeader: () => { throw new Error("become"); },
    onLoseLeadership: async () => { throw new Error("lose"); },
  }));
  const said = await consoleOf(async () => {
    db.fails = new Error("away");
    await election.start();
    assert.equal(election.isCurrentLeader(), false);
    db.fails = null;
    await until(() => election.isCurrentLeader());
    db.fails = new Error("away");
    await until(() => !election.isCurrentLeader());
    db.fails = null;
    await until(() => election.isCurrentLeader());
    await election.stop();
  });
  assert.ok(said.some((words) => words.includes("become")) && said.some((words) => words.includes("lose")));
});

test("a callback may stop the election", async () => {
  const db = new Stand();
  let isLost = false;
  const election = new LeaderElection(db, config("jobs", {
    onBecomeLeader: () => {
      assert.equal(election.isCurrentLeader(), true);
      void election.stop();
    },
    onLoseLeadership: () => void (isLost = true),
  }));
  await election.start();
  await until(() => isLost && db.holder === "");
});

test("a blocked loop keeps nothing", async () => {
  const election = new LeaderElection(new Stand(), config("jobs", { heartbeatTimeoutSeconds: 1 }));
  await election.start();
  assert.equal(election.isCurrentLeader(), true);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_000);
  assert.equal(election.isCurrentLeader(), false, "nobody renewed, and no timer has run");
  await election.stop();
});

test("a hand-over waits for work of runIfLeader", async () => {
  const db = new Stand();
  const election = new LeaderElection(db, config("jobs", { heartbeatTimeoutSeconds: 6 }));
  assert.equal(await runIfLeader(election, () => 7), null);
  await election.start();
  assert.equal(await runIfLeader(election, () => 7), 7);
  const running = runIfLeader(election, async () => {
    await sleep(200);
    return db.holder;
  });
  await election.stop();
  assert.notEqual(await running, "");
  assert.equal(db.holder, "");
});

test("a stand-in that knows only the old functions is asked as before", async () => {
  const calls = [];
  const rpc = async (name, params) => {
    calls.push([name, params]);
    return { data: true, error: null };
  };
  const election = new LeaderElection({ rpc }, config("jobs"));
  await consoleOf(() => election.start());
  assert.equal(election.isCurrentLeader(), true);
  const [name, params] = calls.at(-1);
  assert.equal(name, "try_become_leader");
  assert.deepEqual(Object.keys(params), ["p_service_name", "p_candidate_id", "p_timeout_seconds"]);
  await election.stop();
  assert.equal(calls.at(-1)[0], "step_down");
});

test("timings that the old class took are taken; nonsense is named", async () => {
  const db = new Stand();
  const said = await consoleOf(async () => {
    const election = new LeaderElection(db, config("jobs", { heartbeatIntervalMs: 900, heartbeatTimeoutSeconds: 1 }));
    await election.start();
    await sleep(1_200);
    assert.equal(election.isCurrentLeader(), true, "it beats at a third of the timeout");
    await election.stop();
  });
  assert.equal(said.filter((words) => words.includes("more than a third")).length, 1);
  for (const wrong of [{ heartbeatTimeoutSeconds: 0 }, { heartbeatIntervalMs: NaN }, { serviceName: "" }, { onBecomeLeader: 7 }]) {
    assert.throws(() => new LeaderElection(db, config("jobs", wrong)), new RegExp(Object.keys(wrong)[0]));
  }
  assert.throws(() => new LeaderElection({}, config("jobs")), /Supabase client or a pg.Pool/);
});

test("it is small, and imports nothing of Node's", () => {
  const read = (name) => readFileSync(new URL(`../dist/esm/compat/${name}.js`, import.meta.url), "utf8");
  const code = ["engine", "driver", "leader-election"].map(read).join("");
  assert.ok(gzipSync(code, { level: 9 }).length <= 8_000);
  assert.deepEqual([...code.matchAll(/from "([^"]+)"/g)].map((found) => found[1]).filter((name) => !name.startsWith("./")), []);
});
