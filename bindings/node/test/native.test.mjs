// Elections of the native package, in this process.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { setTimeout as later } from "node:timers/promises";

import * as tenure from "tenure";
import { Candidate, Cron, Election, LeadershipLost, OnceFailed, TenureError, metrics, nextTicks } from "tenure";

import { STORES, begin, elect, sqlite } from "./native-support.mjs";
import { unique, until } from "./support.mjs";

const tick = () => new Promise((resolve) => setImmediate(resolve));

/** A promise, and what settles it. */
function deferred() {
  let resolve;
  const promise = new Promise((settle) => (resolve = settle));
  return { promise, resolve };
}

const refused = (pattern, kind = "config") => (error) => {
  assert.ok(error instanceof TenureError, String(error));
  assert.equal(error.kind, kind);
  assert.equal(error.code, `TENURE_${kind.toUpperCase()}`);
  assert.match(error.message, pattern);
  return true;
};

for (const { kind, needs, open } of STORES) {
  test(`one leads and hands over on ${kind}`, needs, async (t) => {
    const [url, name] = [await open(t), unique("shop")];
    // Without tables, advisory locks have no place for it.
    const metadata = kind === "advisory locks" ? {} : { metadata: { at: "http://a" } };
    const a = await elect(t, name, url, { ttl: "6s", label: "a", ...metadata });
    await begin(a);
    assert.equal(a.isLeader(), true);
    const first = a.term;
    assert.ok(Number.isSafeInteger(first) && first > 0);
    const b = await elect(t, name, url, { ttl: "6s", label: "b" });
    await b.start();
    assert.equal(b.isLeader(), false);
    assert.equal(b.term, null);
    const leader = await b.currentLeader();
    assert.equal(leader.term, first);
    if (kind !== "advisory locks") {
      assert.equal(leader.label, "a");
      assert.deepEqual(leader.metadata, { at: "http://a" });
    }
    const elected = deferred();
    b.on("elected", elected.resolve);
    a.done(first);
    await a.stop();
    assert.equal(a.isLeader(), false);
    assert.ok((await elected.promise) > first);
  });
}

test("it takes part by itself right after open, and what is said there is said before", async (t) => {
  const told = [];
  const election = await elect(t, "soon", sqlite(t), { ttl: "3s" });
  election.on("elected", (term) => told.push(["elected", term]));
  election.on("lost", (term, reason) => told.push(["lost", term, reason]));
  election.on("change", (term) => told.push(["change", term]));
  await until(() => election.isLeader());
  const { term } = election;
  await until(() => told.length === 2);
  election.done(term);
  const stopped = election.stop();
  await stopped;
  assert.deepEqual(told, [["elected", term], ["change", term], ["lost", term, "resigned"], ["change", null]]);
});

test("with start: false it takes no part, and can ask and tell", async (t) => {
  const url = sqlite(t);
  const asks = await elect(t, "quiet", url, { start: false, atOnce: true });
  assert.equal(await asks.currentLeader(), null);
  for (let turn = 0; turn < 20; turn++) await tick();
  assert.equal(await asks.currentLeader(), null);
  assert.equal(asks.isLeader(), false);
  await begin(asks);
  assert.equal(asks.isLeader(), true);
});

test("lead resolves with what the work returned, and gives the lease back first", async (t) => {
  const url = sqlite(t);
  const election = await elect(t, "report", url, { start: false, ttl: "60s" });
  let reign;
  assert.equal(await election.lead(async (given) => {
    reign = given;
    assert.ok(given.isCurrent() && given.isLeader() && given.remaining() > 0);
    return given.term + 41;
  }), 42);
  assert.equal(reign.isCurrent(), false);
  assert.equal(await election.currentLeader(), null);
  assert.ok(reign.signal.aborted);
});

test("an exception gives leadership up, stops the election and goes on to the caller", async (t) => {
  const election = await elect(t, "broken", sqlite(t), { ttl: "60s" });
  await begin(election);
  const failure = new Error("no paper");
  await assert.rejects(election.lead(() => { throw failure; }), (error) => error === failure);
  assert.equal(election.isLeader(), false);
  assert.equal(await election.currentLeader(), null);
});

test("work is told by its signal, is waited for, and begins again in the next reign", async (t) => {
  const url = sqlite(t);
  const election = await elect(t, "again", url, { ttl: "6s", drain: "1500ms", start: false });
  const other = await elect(t, "again", url, { ttl: "3s", start: false });
  const [begun, ended] = [deferred(), []];
  const led = election.lead(async (reign) => {
    begun.resolve(reign.term);
    if (ended.length === 1) return "the second time";
    try {
      await later(1e6, undefined, { signal: reign.signal });
    } finally {
      assert.equal(reign.signal.reason.name, "LeadershipLost");
      assert.equal(reign.signal.reason.reason, "resigned");
      // The lease is kept while it winds up.
      assert.equal((await other.currentLeader()).term, reign.term);
      assert.ok(reign.isCurrent() && !reign.isLeader());
      ended.push(reign.term);
    }
  });
  const first = await begun.promise;
  await election.resign();
  assert.deepEqual(ended, [first]);
  assert.equal(await led, "the second time");
});

test("lead ends with undefined when the election is stopped, and can be called again", async (t) => {
  const election = await elect(t, "stopped", sqlite(t), { ttl: "3s", start: false });
  const begun = deferred();
  const led = election.lead(async ({ signal }) => {
    begun.resolve();
    await later(1e6, undefined, { signal });
  });
  await begun.promise;
  await election.stop();
  assert.equal(await led, undefined);
  assert.equal(await election.lead(() => 5), 5);
});

test("lead is given up by a signal, also while it waits", async (t) => {
  const url = sqlite(t);
  const [a, b] = [await elect(t, "given-up", url, { start: false }), await elect(t, "given-up", url, { start: false })];
  const begun = deferred();
  const [first, second] = [new AbortController(), new AbortController()];
  const leads = a.lead(async ({ signal }) => {
    begun.resolve();
    await later(1e6, undefined, { signal });
  }, { signal: first.signal });
  await begun.promise;
  const waits = b.lead(() => assert.fail("it leads"), { signal: second.signal });
  second.abort(new Error("enough"));
  await assert.rejects(waits, /enough/);
  first.abort(new Error("home"));
  await assert.rejects(leads, /home/);
  assert.equal(await b.currentLeader(), null);
});

test("reigns come one after the other, each with a handle, until the election is stopped", async (t) => {
  const election = await elect(t, "reigns", sqlite(t), { ttl: "3s", renewEvery: "200ms", start: false });
  const terms = [];
  let last;
  for await (const reign of election.reigns()) {
    if (last) assert.equal(last.isCurrent(), false, "the last one was given back");
    last = reign;
    terms.push(reign.term);
    if (terms.length === 2) await reign[Symbol.asyncDispose]();
    if (terms.length === 3) await Promise.all([election.stop(), reign.resign()]);
  }
  assert.deepEqual(terms, [1, 2, 3]);
});

test("leaving the loop gives the reign back", async (t) => {
  const election = await elect(t, "leaves", sqlite(t), { ttl: "60s", start: false });
  for await (const reign of election.reigns()) {
    assert.ok(reign.isLeader());
    break;
  }
  assert.equal(await election.currentLeader(), null);
});

test("runIfLeader registers its work, and does nothing on a follower", async (t) => {
  const url = sqlite(t);
  const [a, b] = [await elect(t, "if", url, { ttl: "60s", start: false }), await elect(t, "if", url, { ttl: "60s", start: false })];
  assert.equal(await a.runIfLeader(() => 1), undefined, "nobody leads yet");
  await begin(a);
  await b.start();
  assert.equal(await b.runIfLeader(() => assert.fail("it does not lead")), undefined);
  const [begun, go] = [deferred(), deferred()];
  const work = a.runIfLeader(async ({ term }) => {
    begun.resolve();
    await go.promise;
    return term;
  });
  await begun.promise;
  let isStopped = false;
  const stopped = a.stop().then(() => (isStopped = true));
  await b.currentLeader();
  assert.equal(isStopped, false, "the lease is not given back while work is registered");
  go.resolve();
  assert.equal(await work, 1);
  await stopped;
  await assert.rejects(b.runIfLeader(undefined), refused(/work of runIfLeader is undefined/));
});

test("isLeader is relied upon: the lease is kept for the drain, or until done", async (t) => {
  const url = sqlite(t);
  const [a, b] = [await elect(t, "i8", url, { ttl: "60s", drain: "10s" }), await elect(t, "i8", url, { start: false })];
  await begin(a);
  const term = a.peekTerm();
  assert.equal(a.isLeader(), true);
  let isStopped = false;
  const stopped = a.stop().then(() => (isStopped = true));
  await until(() => a.peekTerm() === null);
  assert.equal((await b.currentLeader()).term, term);
  assert.equal(isStopped, false);
  a.done(term);
  await stopped;
  assert.equal(await b.currentLeader(), null);
});

test("once runs until a success is recorded, and says where", async (t) => {
  const url = sqlite(t);
  const [a, b] = [await elect(t, "once", url, { start: false }), await elect(t, "once", url, { start: false })];
  const tries = [];
  const work = ({ attempt, key }) => {
    tries.push(`${key} ${attempt}`);
    if (attempt < 2) throw new Error("not yet");
    return "done";
  };
  assert.deepEqual(await a.once("k", work), { outcome: "ran", value: "done" });
  assert.deepEqual(await b.once("k", () => assert.fail("twice")), { outcome: "already", value: undefined });
  assert.deepEqual(tries, ["k 1", "k 2"]);
  await assert.rejects(a.once("bad", () => { throw new Error("never"); }, { tries: 2 }), /never/);
  await assert.rejects(b.once("bad", () => 1, { tries: 2 }), (error) => error instanceof OnceFailed && error.attempts === 2);
  await assert.rejects(a.once("elected", () => 1), refused(/is the name of an event/));
  await assert.rejects(a.once("k", () => 1, { tries: 0 }), refused(/tries is 0/));
});

for (const { kind, needs, open } of STORES.slice(0, 3)) {
  test(`messages reach the leader alone, and posts survive on ${kind}`, needs, async (t) => {
    const [url, name] = [await open(t), unique("orders")];
    const a = await elect(t, name, url, { ttl: "6s" });
    const heard = [];
    a.onMessage("orders", (payload, message) => {
      heard.push(["notice", payload, message.term, message.id]);
    }, { kind: "notices" });
    a.onMessage("orders", (payload, message) => {
      if (message.attempt === 1 && payload.id === 8) throw new Error("once more");
      heard.push([message.key, payload, message.term, message.attempt]);
    }, { kind: "posts" });
    const errors = [];
    a.on("error", (error) => errors.push(error.message));
    const b = await elect(t, name, url, { ttl: "6s", start: false });
    const posted = await b.post("orders", { id: 7, z: 1, a: 2 }, { key: "seven" });
    assert.equal(posted.isNew, true);
    assert.deepEqual(await b.post("orders", { id: 7 }, { key: "seven" }), { id: posted.id, isNew: false });
    await begin(a);
    const { term } = a;
    await b.notify("orders", { id: 9 });
    await b.post("orders", { id: 8 }, { key: "eight" });
    await until(() => heard.length === 3);
    const sorted = Object.fromEntries(heard.map(([key, ...rest]) => [key, rest]));
    assert.deepEqual(sorted, {
      seven: [{ id: 7, z: 1, a: 2 }, term, 1], eight: [{ id: 8 }, term, 2], notice: [{ id: 9 }, term, null],
    });
    assert.deepEqual(Object.keys(sorted.seven[0]), ["id", "z", "a"]);
    assert.ok(errors.includes("once more"));
    assert.throws(() => a.onMessage("late", () => {}), refused(/before the election takes part/));
    const huge = "x".repeat(3_000_000);
    await assert.rejects(b.notify("orders", huge), refused(/bytes/));
    await assert.rejects(b.notify("orders", undefined), refused(/payload is undefined/));
    await assert.rejects(b.notify("orders", 1n), refused(/payload is no JSON/));
    await assert.rejects(b.post("orders", 1, {}), refused(/key is undefined/));
  });

  test(`a job is run once for a tick on ${kind}`, needs, async (t) => {
    const [url, name] = [await open(t), unique("jobs")];
    const a = await elect(t, name, url, { ttl: "6s" });
    const runs = [];
    const cron = new Cron(a).job("nightly", "0 3 * * *", (run) => void runs.push(run), { tz: "Europe/Berlin" });
    cron.job("fails", "@yearly", () => { throw new Error("no paper"); });
    const running = cron.run();
    const at = await cron.trigger("nightly");
    await cron.trigger("fails");
    await until(() => runs.length === 1);
    assert.deepEqual(runs[0].scheduledAt, at);
    assert.ok(runs[0].manual && runs[0].term > 0 && runs[0].attempt === 1);
    const states = async (job) => (await cron.history(job)).map(({ state }) => state);
    await until(async () => (await states("nightly"))[0] === "ok");
    await until(async () => (await states("fails"))[0] === "failed");
    assert.throws(() => cron.job("late", "@daily", () => {}), refused(/before the cron runs/));
    await a.stop();
    await running;
  });
}

test("schedules are read, and their mistakes named", () => {
  const after = new Date("2026-03-28T12:00:00Z");
  const [first] = nextTicks("30 2 * * *", { tz: "Europe/Berlin", count: 1, after });
  assert.equal(first.toISOString(), "2026-03-29T01:00:00.000Z", "02:30 does not exist on that day");
  assert.throws(() => nextTicks("61 * * * *"), refused(/61/));
  assert.throws(() => nextTicks("@daily", { tz: "Mars/Base" }), refused(/Mars/));
});

test("what can't be is refused by name", async (t) => {
  const url = sqlite(t);
  const bad = (name, store, options, pattern) => assert.rejects(Election.open(name, store, options), refused(pattern));
  await bad(7, url, {}, /name of the election is 7; give a string/);
  await bad("", url, {}, /name/);
  await bad("a", "mysql://db/shop", {}, /mysql/);
  await bad("a", 5, {}, /the store is 5/);
  await bad("a", url, { ttl: "30" }, /ttl is "30"; give a duration like "30s"/);
  await bad("a", url, { ttl: -1 }, /ttl is -1/);
  await bad("a", url, { ttl: NaN }, /ttl is NaN/);
  await bad("a", url, { ttl: "30s", renewEvery: "20s" }, /20s, more than 10s/);
  await bad("a", url, { ttl: "1h", margin: "59m" }, /margin/);
  await bad("a", url, { ttL: "30s" }, /no option "ttL"; known are label/);
  await bad("a", url, { metadata: 7 }, /metadata is no object/);
  await bad("a", url, { metadata: { big: "x".repeat(100_000) } }, /metadata/);
  await bad("a", url, { profile: "slow" }, /slow/);
  await bad("a", url, { termFloor: 0.5 }, /termFloor is 0.5/);
  await bad("a", url, { label: "x".repeat(300) }, /label/);
  assert.throws(() => new Election("a"), refused(/await Election.open/));
  const election = await elect(t, "a", url, { start: false, ttl: "1m30s" });
  assert.deepEqual(election.timing, { ttlMs: 90_000, renewEveryMs: 30_000, marginMs: 2_000, drainMs: 15_000 });
  assert.throws(() => election.on("won", () => {}), refused(/no event "won"; known are elected/));
  assert.throws(() => election.on("lost", 5), refused(/listener is 5/));
  assert.throws(() => election.done("1"), refused(/term is "1"/));
  await assert.rejects(election.lead("work"), refused(/work of lead is "work"/));
  assert.throws(() => new Cron({}), refused(/give one of `Election.open`/));
});

test("a store that does not answer is told of, and no leader is made up", async (t) => {
  const election = await elect(t, "away", "postgres://127.0.0.1:1/nothing", { ttl: "3s", start: false });
  const told = deferred();
  election.on("error", told.resolve);
  const starting = election.start().catch(() => {});
  const error = await told.promise;
  assert.ok(error instanceof TenureError && error.retryable && error.kind === "unavailable", String(error));
  assert.equal(election.isLeader(), false);
  await assert.rejects(election.currentLeader(), refused(/./, "unavailable"));
  await election.stop();
  await starting;
});

test("secrets in URLs do not show", async () => {
  const candidate = await Candidate.open("postgres://u:hidden@127.0.0.1:1/db");
  assert.doesNotMatch(candidate.address, /hidden/);
  await assert.rejects(Election.open("a", "postgres://u:hidden@127.0.0.1:1/db?nonsense=1"), (error) => {
    assert.doesNotMatch(error.message, /hidden/);
    return true;
  });
});

test("elections share a candidate", async (t) => {
  const candidate = await Candidate.open(sqlite(t), { label: "shared" });
  const many = await Promise.all(Array.from({ length: 50 }, (_, at) => elect(t, `e${at}`, candidate, { atOnce: true })));
  await Promise.all(many.map(begin));
  assert.ok(many.every((one) => one.isLeader()));
  assert.equal(new Set(many.map((one) => one.id)).size, 1);
  await assert.rejects(Election.open("x", candidate, { label: "y" }), refused(/label is given/));
});

test("what is logged goes to the log that was given, an object first", async (t) => {
  const lines = [];
  const log = { info: (...line) => lines.push(line), error: () => { throw new Error("a log that fails"); } };
  const election = await elect(t, "logged", sqlite(t), { log });
  await begin(election);
  await until(() => lines.some(([fields, message]) => fields.election === "logged" && /elected/.test(message)));
});

test("what is counted can be scraped", async (t) => {
  const election = await elect(t, "metered:1", sqlite(t));
  await begin(election);
  await until(() => /leader_acquired_total\{[^}]*key_class="metered"[^}]*\} 1/.test(metrics()));
});

test("both module systems have the same classes", () => {
  const required = createRequire(import.meta.url)("tenure");
  assert.equal(required.Election, Election);
  assert.deepEqual(Object.keys(required).sort(), Object.keys(tenure).sort());
  assert.equal(new LeadershipLost("asked").code, "TENURE_LOST");
});
