// The drop-in for the advisory lock, on real PostgreSQL.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";

import pg from "pg";
import createDefault, { createLeaderElector } from "tenure/compat/advisory";
import { LeaderElection } from "tenure/compat/leader-election";

import { POSTGRES, makeDatabase, sleep, until, withPostgres } from "./support.mjs";

let pool, lock = 1_000_000 + Math.floor(Math.random() * 1_000_000_000);

before(() => {
  if (!withPostgres.skip) pool = new pg.Pool({ connectionString: POSTGRES, max: 20 });
});
after(() => pool?.end());

const quiet = { info() {}, debug() {}, warn() {}, error() {} };

function holders(key) {
  const sql = "SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND objid::bigint = $1";
  return pool.query(sql, [key]).then(({ rows }) => rows[0].n);
}

test("require is the function", () => {
  const required = createRequire(import.meta.url)("tenure/compat/advisory");
  assert.equal(typeof required, "function");
  assert.equal(required.default, required);
  assert.equal(createDefault, createLeaderElector);
});

test("one leads, stops for good, and another takes over", withPostgres, async () => {
  const key = lock++;
  const changes = [];
  const make = (name) => createLeaderElector({
    pool, lock: key, poll: 200, log: quiet, onLeadershipChange: (leads) => void changes.push([name, leads]),
  });
  const [a, b] = [make("a"), make("b")];
  const running = a.start();
  assert.equal(a.start(), running, "a second start is the same");
  await until(() => a.isLeader());
  b.start();
  await sleep(600);
  assert.deepEqual([a.isLeader(), b.isLeader(), await holders(key)], [true, false, 1]);
  await a.stop();
  await running;
  assert.equal(a.isLeader(), false);
  await until(() => b.isLeader());
  await b.stop();
  assert.equal(await holders(key), 0);
  assert.deepEqual(changes, [["a", true], ["a", false], ["b", true], ["b", false]]);
  assert.equal(pool.idleCount, pool.totalCount, "all clients are back");
});

test("beside an old client: the same lock, both ways", withPostgres, async () => {
  const key = lock++;
  const old = await pool.connect();
  assert.equal((await old.query("SELECT pg_try_advisory_lock($1) AS yes", [key])).rows[0].yes, true);
  const elector = createLeaderElector({ pool, lock: String(key), poll: 100, log: { info() {} } });
  elector.start();
  await sleep(500);
  assert.equal(elector.isLeader(), false);
  await old.query("SELECT pg_advisory_unlock($1)", [key]);
  await until(() => elector.isLeader());
  assert.equal((await old.query("SELECT pg_try_advisory_lock($1) AS yes", [key])).rows[0].yes, false);
  await elector.stop();
  assert.equal((await old.query("SELECT pg_try_advisory_lock($1) AS yes", [key])).rows[0].yes, true);
  old.release(true);
});

test("notifications reach the leader, one after the other, and any payload is data", withPostgres, async () => {
  const key = lock++;
  const [name, heard, warned] = [`orders "${key}"`, [], []];
  let running = 0;
  const elector = createLeaderElector({
    pool, lock: BigInt(key), poll: 200,
    log: { warn: (data, words) => warned.push([data, words]) },
    channels: [{
      channel: name,
      onNotification: async (payload) => {
        assert.equal(running++, 0);
        await sleep(20);
        running--;
        heard.push(payload);
        if (payload.fails) throw new Error("a handler of the program's own");
      },
    }],
  });
  await elector.notify({ lost: "nobody leads" }, name);
  elector.start();
  await until(() => elector.isLeader());
  const sent = [{ text: "it's'; DROP TABLE users; --" }, "plain", { fails: true }, 7];
  for (const payload of sent) await elector.notify(payload, name);
  await pool.query("SELECT pg_notify($1, $2)", [name, '{"foreign":true}']);
  await pool.query("SELECT pg_notify($1, $2)", [name, "no JSON"]);
  await until(() => heard.length === 5 && warned.length === 2);
  assert.deepEqual(heard, [...sent, { foreign: true }]);
  assert.equal(warned[0][0].err.message, "a handler of the program's own");
  await elector.stop();
  await elector.notify("late", name);
  await sleep(100);
  assert.equal(heard.length, 5);
  await assert.rejects(elector.notify("x".repeat(8_000), name), /7999/);
  assert.equal(pool.idleCount, pool.totalCount);
});

test("a dropped connection ends leadership, not the process", withPostgres, async () => {
  const key = lock++;
  const changes = [];
  const elector = createLeaderElector({ pool, lock: key, poll: 200, onLeadershipChange: (leads) => void changes.push(leads) });
  elector.start();
  await until(() => elector.isLeader());
  await pool.query(
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid::bigint = $1", [key],
  );
  await until(() => changes.length >= 3);
  assert.deepEqual(changes.slice(0, 3), [true, false, true]);
  await elector.stop();
});

test("a bridge leads with the lock and the lease, and gives the lease back first", withPostgres, async () => {
  const database = await makeDatabase(true);
  const own = new pg.Pool({ connectionString: database.url });
  const timing = { heartbeatTimeoutSeconds: 3, heartbeatIntervalMs: 1_000 };
  const election = new LeaderElection(own, { serviceName: "invoices", candidateId: "a", ...timing });
  const seen = [];
  const key = lock++;
  const elector = createLeaderElector({
    pool: own, lock: key, poll: 2_000,
    onLeadershipChange: async (leads) => {
      if (leads) return election.start();
      await election.stop();
      const { rows } = await own.query("SELECT leader_id FROM leader_election");
      seen.push(rows[0].leader_id, (await own.query("SELECT count(*)::int AS n FROM pg_locks WHERE objid::bigint = $1", [key])).rows[0].n);
    },
  });
  elector.start();
  await until(() => elector.isLeader() && election.isCurrentLeader());
  assert.equal(election.term, 1);
  await elector.stop();
  assert.deepEqual(seen, ["", 1]);
  await own.end();
  await database.drop();
});

test("a change callback that hangs keeps no client for ever", withPostgres, async () => {
  const own = new pg.Pool({ connectionString: POSTGRES });
  const key = lock++;
  const elector = createLeaderElector({
    pool: own, lock: key, poll: 100, onLeadershipChange: (leads) => (leads ? undefined : new Promise(() => {})),
  });
  elector.start();
  await until(() => elector.isLeader());
  const began = performance.now();
  await elector.stop();
  assert.ok(performance.now() - began < 2_000, "a sixth of 3 s, on a busy machine");
  assert.equal(await holders(key), 1, "it runs out");
  await own.end();
  await until(async () => (await holders(key)) === 0);
});

const withPooler = process.env.TENURE_TEST_PGBOUNCER ? {} : { skip: "needs PgBouncer" };

test("a pooler in transaction mode is refused with a sentence", withPooler, async () => {
  const pooled = new pg.Pool({ connectionString: process.env.TENURE_TEST_PGBOUNCER });
  const said = [];
  const elector = createLeaderElector({ pool: pooled, lock: lock++, poll: 300, log: { warn: ({ err }) => said.push(err.message) } });
  elector.start();
  await until(() => said.some((words) => words.includes("pooler in transaction mode")));
  assert.equal(elector.isLeader(), false);
  await elector.stop();
  await pooled.end();
});

test("arguments", () => {
  const fine = { pool: {}, lock: 123 };
  assert.throws(() => createLeaderElector({ lock: 1 }), { message: "pool is required" });
  assert.throws(() => createLeaderElector({ pool: {} }), { message: "lock is required" });
  assert.throws(() => createLeaderElector({ pool: {}, lock: 0 }), { message: "lock is required" });
  assert.throws(() => createLeaderElector({ pool: {}, lock: 1.5 }), /lock must be/);
  assert.throws(() => createLeaderElector({ pool: {}, lock: 2n ** 64n }), /64 bits/);
  assert.throws(() => createLeaderElector({ ...fine, poll: 0 }), /poll/);
  assert.throws(() => createLeaderElector({ ...fine, channels: "x" }), { message: "channels must be an array" });
  assert.throws(
    () => createLeaderElector({ ...fine, channels: [{ onNotification() {} }] }),
    { message: "channel is required for each notification channel" },
  );
  assert.throws(
    () => createLeaderElector({ ...fine, channels: [{ channel: "x" }] }),
    { message: "onNotification is required for each notification channel" },
  );
  assert.throws(
    () => createLeaderElector({ ...fine, channels: [{ channel: "x".repeat(64), onNotification() {} }] }),
    /63 is the limit/,
  );
  assert.doesNotThrow(() => createLeaderElector({ pool: {}, lock: "-5" }));
});
