// Schedulers and frameworks that people have, with the real packages.
import assert from "node:assert/strict";
import { test } from "node:test";

import Fastify from "fastify";
import cron from "node-cron";
import { Cron } from "tenure";
import { fastifyTenure, runCoordinator, whileLeading } from "tenure/adapters";

import { atEnd, begin, elect, sqlite } from "./native-support.mjs";
import { until } from "./support.mjs";

test("a tick of node-cron runs on the leader, once", async (t) => {
  const url = sqlite(t);
  const [a, b] = [await elect(t, "cron", url, { atOnce: true }), await elect(t, "cron", url, { atOnce: true, start: false })];
  await begin(a);
  await b.start();
  const runs = [];
  const schedule = (name, election) => {
    const runCoordinated = { distributed: true, runCoordinator: runCoordinator(election), name: "tick", noOverlap: false };
    const task = cron.schedule("* * * * * *", ({ date }) => void runs.push(`${name} ${date.toISOString()}`), runCoordinated);
    atEnd(t, () => task.destroy());
  };
  schedule("a", a);
  schedule("b", b);
  await until(() => runs.length >= 2, 60_000);
  await a.stop();
  await until(() => b.isLeader(), 60_000);
  await until(() => runs.some((run) => run.startsWith("b")), 60_000);
  const instants = runs.map((run) => run.split(" ")[1].slice(0, 19));
  assert.equal(new Set(instants).size, runs.length, "no instant twice");
  const ledger = await new Cron(b).history();
  assert.ok(ledger.filter(({ state }) => state === "ok").length >= 2, JSON.stringify(ledger));
});

test("what was claimed before is refused, also to a later leader, and keys must have an instant", async (t) => {
  const url = sqlite(t);
  const [a, b] = [await elect(t, "claims", url, { atOnce: true }), await elect(t, "claims", url, { atOnce: true, start: false })];
  await begin(a);
  const [first, second] = [runCoordinator(a), runCoordinator(b)];
  const key = "job:with:colons:2026-11-18T17:00:00.000Z";
  assert.equal(await second.shouldRun(key, 1), false, "it does not lead");
  assert.equal(await first.shouldRun(key, 1), true);
  await first.onComplete(key);
  assert.equal(await first.shouldRun(key, 1), false);
  await a.stop();
  await b.start();
  assert.equal(await second.shouldRun(key, 1), false);
  await assert.rejects(second.shouldRun("job", 1), /has no instant at its end/);
});

test("a consumer runs while this instance leads, and has stopped before the lease is given back", async (t) => {
  const url = sqlite(t);
  const told = [];
  const make = async (label) => {
    const election = await elect(t, "consumer", url, { ttl: "60s", start: false });
    const stop = async () => {
      const leader = await election.currentLeader();
      told.push(`${label} stops, ${leader.term} holds the lease`);
    };
    const gated = whileLeading(election, { start: ({ term }) => void told.push(`${label} starts as ${term}`), stop });
    return { election, gated };
  };
  const a = await make("a");
  await until(() => told.length === 1, 60_000);
  const b = await make("b");
  await a.election.stop();
  await a.gated;
  await until(() => told.length === 3, 60_000);
  await b.election.stop();
  await b.gated;
  assert.deepEqual(told, ["a starts as 1", "a stops, 1 holds the lease", "b starts as 2", "b stops, 2 holds the lease"]);
  await assert.rejects(whileLeading(a.election, { start: () => {} }), /stop is undefined/);
});

test("Fastify tells who leads, and stops its election when it is closed", async (t) => {
  const url = sqlite(t);
  const asks = await elect(t, "web", url, { start: false });
  const app = Fastify();
  await app.register(fastifyTenure, { election: { name: "web", store: url, options: { atOnce: true, ttl: "10m" } } });
  await until(() => app.election.peekTerm() === 1);
  const own = await app.inject("/leader");
  assert.deepEqual([own.statusCode, own.json()], [200, { leads: true, term: 1, leader: null }]);
  const other = Fastify();
  await other.register(fastifyTenure, { election: asks, path: "/who" });
  const told = await other.inject("/who");
  assert.deepEqual([told.statusCode, told.json().leader.term], [503, 1]);
  await app.close();
  await other.close();
  assert.equal(await asks.currentLeader(), null);
});
