// The fence, with the real packages: work of an old term does not commit.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { drizzle } from "drizzle-orm/node-postgres";
import { drizzle as drizzleJs } from "drizzle-orm/postgres-js";
import { sql } from "drizzle-orm";
import { Redis } from "ioredis";
import { Kysely, PostgresDialect } from "kysely";
import pg from "pg";
import postgres from "postgres";
import { createClient } from "redis";
import { StaleTerm as SameStaleTerm, TenureError } from "tenure";
import { FENCE_LUA, RedisFence, StaleTerm, check } from "tenure/fence";

import { atEnd, begin, elect } from "./native-support.mjs";
import { REDIS, makeDatabase, unique, withPostgres, withRedis } from "./support.mjs";

const isStale = (error) => {
  assert.ok(error instanceof StaleTerm && error instanceof SameStaleTerm, String(error));
  assert.equal(error.code, "TENURE_STALE_TERM");
  return true;
};
const isRefused = (error) => error instanceof TenureError && /no transaction is open/.test(error.message);

/** A pool whose connections may be ended with their database. */
function quietPool(connectionString) {
  const pool = new pg.Pool({ connectionString });
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  return pool;
}

/** How each package runs `work(transaction, insert)` in a transaction, and what it has outside of one. */
const PACKAGES = {
  pg: async (url) => {
    const client = new pg.Client(url);
    client.on("error", () => {});
    await client.connect();
    return {
      outside: client,
      end: () => client.end(),
      transaction: async (work) => {
        await client.query("BEGIN");
        try {
          await work(client, (term) => client.query("INSERT INTO effect VALUES ($1)", [term]));
          await client.query("COMMIT");
        } catch (error) {
          await client.query("ROLLBACK");
          throw error;
        }
      },
    };
  },
  postgres: async (url) => {
    const db = postgres(url, { onnotice: () => {} });
    const transaction = (work) => db.begin((tx) => work(tx, (term) => tx`INSERT INTO effect VALUES (${term})`));
    return { outside: db, end: () => db.end(), transaction };
  },
  kysely: async (url) => {
    const db = new Kysely({ dialect: new PostgresDialect({ pool: quietPool(url) }) });
    const transaction = (work) => db.transaction().execute(
      (tx) => work(tx, (term) => tx.insertInto("effect").values({ term }).execute()),
    );
    return { outside: db, end: () => db.destroy(), transaction };
  },
  "drizzle on pg": async (url) => {
    const pool = quietPool(url);
    const db = drizzle(pool);
    const transaction = (work) => db.transaction((tx) => work(tx, (term) => tx.execute(sql`INSERT INTO effect VALUES (${term})`)));
    return { outside: db, end: () => pool.end(), transaction };
  },
  "drizzle on postgres": async (url) => {
    const client = postgres(url, { onnotice: () => {} });
    const db = drizzleJs(client);
    const transaction = (work) => db.transaction((tx) => work(tx, (term) => tx.execute(sql`INSERT INTO effect VALUES (${term})`)));
    return { outside: db, end: () => client.end(), transaction };
  },
};

for (const [name, open] of Object.entries(PACKAGES)) {
  test(`a stale term commits nothing with ${name}`, withPostgres, async (t) => {
    const database = await makeDatabase(true);
    atEnd(t, database.force);
    const { outside, transaction, end } = await open(database.url);
    atEnd(t, end);
    const eye = new pg.Client(database.url);
    eye.on("error", () => {});
    await eye.connect();
    atEnd(t, () => eye.end());
    await eye.query("CREATE TABLE effect (term bigint)");
    const election = await elect(t, "fenced", database.url, { atOnce: true });
    await begin(election);
    const { term } = election;
    const write = () => transaction(async (tx, insert) => {
      await check(tx, "fenced", term);
      await insert(term);
    });
    await write();
    await assert.rejects(check(outside, "fenced", term), isRefused);
    await assert.rejects(check(outside, "fenced", 0.5), /the term is 0.5/);
    await election.stop();
    await assert.rejects(write(), isStale);
    const { rows } = await eye.query("SELECT term::int FROM effect");
    assert.deepEqual(rows, [{ term }]);
  });
}

test("a pool is refused, since each query is another transaction", withPostgres, async (t) => {
  const database = await makeDatabase(true);
  atEnd(t, database.force);
  const pool = quietPool(database.url);
  atEnd(t, () => pool.end());
  await assert.rejects(check(pool, "fenced", 1), isRefused);
  await assert.rejects(check({}, "fenced", 1), /check does not know an object/);
});

const CLIENTS = {
  ioredis: () => {
    const client = new Redis(REDIS);
    return { client, end: () => client.quit() };
  },
  redis: async () => {
    const client = await createClient({ url: REDIS }).connect();
    return { client, end: () => client.close() };
  },
};

for (const [name, open] of Object.entries(CLIENTS)) {
  test(`a stale term writes nothing with ${name}`, withRedis, async (t) => {
    const { client, end } = await open();
    atEnd(t, end);
    const [prefix, key] = [`${unique("f")}:`, unique("value")];
    const election = await elect(t, "fenced", `${REDIS.replace(/\/\d*$/, "")}/0?settle=off&prefix=${prefix}`, { atOnce: true });
    await begin(election);
    const fence = new RedisFence(client, "fenced", election.term, { prefix });
    assert.equal(await fence.run(["SET", key, 1]), "OK");
    await assert.rejects(fence.run([]), /the command is none/);
    await assert.rejects(fence.run(["NONSENSE", key]), (error) => !(error instanceof StaleTerm));
    await election.stop();
    await assert.rejects(fence.run(["SET", key, 2]), isStale);
    assert.equal(await client.get(key), "1");
    assert.throws(() => new RedisFence({}, "fenced", 1), /does not know/);
  });
}

test("the script is the one of the Redis store", () => {
  const script = readFileSync(new URL("../../../crates/tenure-redis/src/lua/fence.lua", import.meta.url), "utf8");
  assert.equal(FENCE_LUA, script);
});
