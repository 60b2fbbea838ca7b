// The drop-in for the Redis lease, on a real server: ioredis, node-redis and the old wrapper.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, test } from "node:test";

import { Redis } from "ioredis";
import { createClient } from "redis";
import { createLeader } from "tenure/compat/redis-leader";

import { REDIS, TENURE, sleep, unique, until, withRedis } from "./support.mjs";

let io, node;

before(async () => {
  if (withRedis.skip) return;
  io = new Redis(REDIS);
  node = createClient({ url: REDIS });
  await node.connect();
});

after(async () => {
  if (withRedis.skip) return;
  await io.quit();
  await node.close();
});

/** The wrapper of the old package. */
const wrapped = (redis, keyPrefix = "app:") => ({
  redis, keyPrefix, key: (key) => keyPrefix + key, duplicate: () => redis.duplicate(), quit: () => redis.quit(),
});

const clients = {
  ioredis: () => io,
  "node-redis": () => node,
  wrapper: () => wrapped(io),
};

for (const [kind, client] of Object.entries(clients)) {
  test(`one leads and hands over: ${kind}`, withRedis, async () => {
    const key = unique("cron");
    const options = { key, leaseMs: 2_000, renewMs: 300 };
    const a = createLeader(client(), { ...options, instanceId: "a" });
    assert.equal(a.isLeader(), false, "the first attempt is under way");
    assert.equal(typeof a.then, "undefined");
    await until(() => a.isLeader());
    const b = await createLeader(client(), { ...options, instanceId: "b" });
    assert.equal(await io.get(a.key), "a", "verbatim");
    const ttl = await io.pttl(a.key);
    assert.ok(ttl > 0 && ttl <= 2_000);
    assert.equal(await b.currentLeader(), "a");
    await sleep(2_500);
    assert.deepEqual([a.isLeader(), b.isLeader()], [true, false]);
    const { stop } = a;
    await stop();
    await stop();
    assert.equal(a.isLeader(), false);
    await until(() => b.isLeader());
    await b.stop();
    assert.equal(await b.currentLeader(), null);
    assert.equal(await io.exists(b.key), 0);
  });
}

test("two instances with one id are two", withRedis, async () => {
  const options = { key: unique("cron"), instanceId: "same", leaseMs: 1_500, renewMs: 200 };
  const both = [createLeader(io, options), createLeader(node, options)];
  await until(() => both.some((one) => one.isLeader()));
  await sleep(2_000);
  assert.equal(both.filter((one) => one.isLeader()).length, 1);
  await Promise.all(both.map((one) => one.stop()));
});

test("prefixes of wrapper and ioredis both count, and all keys begin with them", withRedis, async () => {
  const [outer, key] = [unique("outer") + ":", unique("cron")];
  const prefixed = new Redis(REDIS, { keyPrefix: outer });
  const leader = createLeader(wrapped(prefixed), { key, instanceId: "a", leaseMs: 1_500 });
  await until(() => leader.isLeader());
  assert.equal(await io.get(`${outer}app:${key}`), "a");
  const keys = await io.keys(`*${key}*`);
  assert.equal(keys.length, 2);
  assert.ok(keys.every((one) => one.startsWith(`${outer}app:`)), keys.join());
  await leader.stop();
  await prefixed.quit();
});

test("an old client and the drop-in have one leader", withRedis, async () => {
  const key = unique("cron");
  assert.equal(await io.set(key, "old", "PX", 1_000, "NX"), "OK");
  const leader = createLeader(io, { key, leaseMs: 1_500, renewMs: 100 });
  await sleep(500);
  assert.equal(leader.isLeader(), false);
  await until(() => leader.isLeader());
  assert.equal(await io.set(key, "old", "PX", 1_000, "NX"), null);
  // It takes the key by force: the drop-in notices, and does not delete what is not its own.
  await io.set(key, "old", "PX", 60_000);
  await until(() => !leader.isLeader());
  await leader.stop();
  assert.equal(await io.get(key), "old");
  await io.del(key);
});

test("tenure's own store and the drop-in have one leader", withRedis, async () => {
  const key = unique("cron");
  const run = () => {
    const args = ["run", key, "--no-wait", "--ttl", "3s", "--store", `${REDIS}?settle=off`, "--", "true"];
    return spawnSync(TENURE, args, { timeout: 30_000 }).status;
  };
  const leader = createLeader(io, { key, leaseMs: 5_000 });
  await until(() => leader.isLeader());
  assert.notEqual(run(), 0, "somebody else leads");
  // A key that vanished alone is not vacant (R6), neither for tenure nor for the drop-in.
  await io.del(leader.key);
  assert.notEqual(run(), 0);
  await until(async () => (await io.get(leader.key)) === leader.instanceId);
  assert.equal(leader.isLeader(), true);
  await leader.stop();
  assert.equal(run(), 0);
});

test("the first failed renewal ends it, and nothing is sent while the client is away", withRedis, async () => {
  const errors = [];
  const own = new Redis(REDIS);
  const breaker = { ok: 0, bad: 0, success() { this.ok++; }, failure() { this.bad++; } };
  const counts = {};
  const metrics = {
    counter: (name, help, labels) => ({
      inc: (given) => {
        assert.deepEqual(labels, ["key_class"]);
        counts[`${name} ${given.key_class}`] = (counts[`${name} ${given.key_class}`] ?? 0) + 1;
      },
    }),
  };
  const key = `cron:${unique("nightly")}`;
  const leader = createLeader(own, {
    key, leaseMs: 1_500, renewMs: 100, breaker, metrics,
    onError: (error) => { errors.push(error); throw new Error("a listener of the program's own"); },
  });
  await until(() => leader.isLeader());
  own.disconnect();
  await until(() => !leader.isLeader());
  assert.ok(errors.length >= 1 && errors[0] instanceof Error);
  await own.connect();
  await until(() => leader.isLeader());
  await leader.stop();
  own.disconnect();
  assert.equal(await leader.currentLeader(), null);
  assert.ok(breaker.ok > 0 && breaker.bad > 0);
  assert.equal(counts["leader_acquired_total cron"], 2);
  assert.equal(counts["leader_lost_total cron"], 1);
  assert.ok(counts["leader_renewals_total cron"] >= 1);
  assert.ok(counts["leader_renewal_failures_total cron"] >= 1);
});

test("stop resolves with Redis down", withRedis, async () => {
  const own = new Redis(REDIS);
  const leader = createLeader(own, { key: unique("cron"), leaseMs: 3_000 });
  await until(() => leader.isLeader());
  own.disconnect();
  const began = performance.now();
  await leader.stop();
  assert.ok(performance.now() - began < 2_000);
});

test("a client that may not touch the notes falls back, and says so", withRedis, async () => {
  const [user, key] = [unique("user"), unique("cron")];
  await io.call("ACL", "SETUSER", user, "on", ">secret", `~${key}`, "+@all");
  const own = new Redis(REDIS, { username: user, password: "secret" });
  const errors = [];
  const leader = createLeader(own, { key, leaseMs: 1_500, renewMs: 200, onError: (error) => errors.push(error.message) });
  await until(() => leader.isLeader());
  assert.equal(errors.length, 1);
  assert.match(errors[0], /permit that key/);
  await leader.stop();
  assert.equal(await io.exists(key), 0);
  await own.quit();
  await io.call("ACL", "DELUSER", user);
});

test("options", () => {
  const fake = { eval: async () => [0, 1], get: async () => null };
  for (const [wrong, says] of [
    [{ key: "" }, /key/], [{ instanceId: "" }, /instanceId/], [{ leaseMs: 0 }, /leaseMs/], [{ renewMs: 0 }, /renewMs/],
    [{ leaseMs: 100, renewMs: 100 }, /renewMs must be < leaseMs/], [{ leaseMs: 5, leaseTtlMs: 6 }, /give one/],
    [{ onError: 1 }, /onError/], [{ mapKey: 1 }, /mapKey/],
  ]) {
    assert.throws(() => createLeader(fake, wrong), says);
  }
  assert.throws(() => createLeader(null), /client/);
  assert.throws(() => createLeader({}), /client/);
});
