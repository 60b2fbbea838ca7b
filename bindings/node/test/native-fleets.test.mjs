// Fleets of the native package, alone and with all that shares its store: drop-ins, and the command.
import assert from "node:assert/strict";
import { test } from "node:test";

import pg from "pg";

import { FAULTS, fleet } from "./fleet.mjs";
import { sqlite } from "./native-support.mjs";
import { POSTGRES, REDIS, TENURE, makeDatabase, unique, withPostgres, withRedis } from "./support.mjs";

const eachNative = Math.max(Math.floor(FAULTS / 8), 1);

test("the native package on SQLite, alone and with the command", async (t) => {
  const url = sqlite(t);
  await fleet(["native", "native", "native"], url, unique("jobs"), 2_000, eachNative);
  if (TENURE) await fleet(["native", "command", "native"], url, unique("jobs"), 2_000, eachNative);
});

test("the native package on Postgres, alone and with the drop-in and the command, and its fenced writes", withPostgres, async () => {
  const database = await makeDatabase(true);
  const eye = new pg.Client(database.url);
  await eye.connect();
  await eye.query("CREATE TABLE effect (id bigserial PRIMARY KEY, election text, term bigint)");
  const alone = await fleet(["native", "native", "native"], database.url, unique("jobs"), 2_000, eachNative);
  const mixed = await fleet(["native", "table", "command", "native"], database.url, unique("jobs"), 2_000, eachNative);
  const { rows } = await eye.query(`
    SELECT count(*)::int AS writes, count(*) FILTER (WHERE term < highest)::int AS stale FROM (
      SELECT term, max(term) OVER (PARTITION BY election ORDER BY id) AS highest FROM effect) AS all_of_them`);
  await eye.end();
  const said = (word) => [...alone, ...mixed].reduce((sum, { words }) => sum + words[word], 0);
  assert.equal(rows[0].stale, 0);
  // One whose process was killed may have committed without saying so.
  assert.ok(rows[0].writes >= said("written") && said("written") > 0);
  assert.ok(said("refused") > 0, "somebody wrote under a term that was over");
  await database.drop();
});

test("the native package on Redis, alone and with the drop-in", withRedis, async () => {
  const plain = REDIS.replace(/\/\d*$/, "");
  const url = { native: `${plain}/0`, plain };
  await fleet(["native", "native", "native"], url, unique("cron"), 2_000, eachNative);
  await fleet(["native", "redis", "native"], url, unique("cron"), 2_000, eachNative);
});

test("the native package on advisory locks, alone and with the drop-in", withPostgres, async () => {
  const lock = () => String(Math.floor(Math.random() * 2 ** 40));
  const url = { native: POSTGRES.replace(/^postgres(ql)?:/, "postgres+advisory:"), plain: POSTGRES };
  await fleet(["native", "native", "native"], url, lock(), 3_000, eachNative);
  await fleet(["native", "advisory", "native"], url, lock(), 3_000, eachNative);
});
