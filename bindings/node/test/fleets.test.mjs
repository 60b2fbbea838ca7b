// Fleets of the drop-ins, with old clients among them.
import assert from "node:assert/strict";
import { test } from "node:test";

import { FAULTS, fleet, overlaps } from "./fleet.mjs";
import { POSTGRES, REDIS, makeDatabase, unique, withPostgres, withRedis } from "./support.mjs";

test("the judge sees an overlap", () => {
  const told = (label, ...pairs) => ({ label, beliefs: pairs.map(([reign, at]) => ({ reign, before: at, after: at + 0.1 })) });
  const a = told("a", [1, 1], [1, 2], [2, 5], [2, 6]);
  const b = told("b", [1, 2.2], [1, 4]);
  const c = told("c", [1, 3], [1, 5.5]);
  assert.deepEqual(overlaps([a, b]), []);
  assert.equal(overlaps([a, b, c]).length, 2);
});

const each = Math.max(Math.floor(FAULTS / 6), 1);

test("the heartbeat table", withPostgres, async () => {
  const database = await makeDatabase(true);
  await fleet(["table", "table", "table"], database.url, unique("jobs"), 2_000, each);
  await fleet(["table", "old table", "table"], database.url, unique("jobs"), 2_000, each);
  await database.drop();
});

test("the Redis lease", withRedis, async () => {
  await fleet(["redis", "redis", "redis"], REDIS, unique("cron"), 2_000, each);
  await fleet(["redis", "old redis", "redis"], REDIS, unique("cron"), 2_000, each);
});

test("the advisory lock", withPostgres, async () => {
  const lock = () => String(Math.floor(Math.random() * 2 ** 40));
  await fleet(["advisory", "advisory", "advisory"], POSTGRES, lock(), 3_000, each);
  await fleet(["advisory", "old advisory", "advisory"], POSTGRES, lock(), 3_000, each);
});
