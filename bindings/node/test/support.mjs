// What the tests on servers share. `cargo xtask test` starts the servers and sets the variables.
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";

import pg from "pg";

export const POSTGRES = process.env.TENURE_TEST_POSTGRES;
export const REDIS = process.env.TENURE_TEST_REDIS;
export const TENURE = process.env.TENURE_TEST_COMMAND;

export const withPostgres = POSTGRES && TENURE ? {} : { skip: "needs the servers of `cargo xtask test`" };
export const withRedis = REDIS && TENURE ? {} : { skip: "needs the servers of `cargo xtask test`" };

const OLD_TABLE = readFileSync(
  new URL("../../../crates/tenure-postgres/tests/all/common/old.sql", import.meta.url), "utf8",
);

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export const unique = (name) => `${name}-${randomUUID().slice(0, 8)}`;

export async function until(holds, limit = 15_000, what = "nothing came of it") {
  const by = Date.now() + limit;
  while (!(await holds())) {
    if (Date.now() > by) throw new Error(what);
    await sleep(10);
  }
}

/** A database of its own: with tenure's functions, or with the old ones alone. */
export async function makeDatabase(isMigrated) {
  const name = `node_${randomUUID().replaceAll("-", "").slice(0, 12)}`;
  const server = new pg.Client(POSTGRES);
  await server.connect();
  await server.query(`CREATE DATABASE ${name}`);
  const url = POSTGRES.replace(/\/[^/]*$/, `/${name}`);
  const client = new pg.Client(url);
  await client.connect();
  await client.query(OLD_TABLE);
  await client.end();
  if (isMigrated) execFileSync(TENURE, ["migrate", "--store", url], { stdio: "ignore", timeout: 60_000 });
  const drop = async () => {
    // By force only if need be: a connection that is just closing would tell of an error.
    const isGone = () => server.query(`DROP DATABASE ${name}`).then(() => true, () => false);
    await until(isGone, 5_000).catch(() => server.query(`DROP DATABASE ${name} WITH (FORCE)`));
    await server.end();
  };
  // For those who leave connections to the garbage collector.
  const force = async () => {
    await server.query(`DROP DATABASE ${name} WITH (FORCE)`);
    await server.end();
  };
  return { url, drop, force };
}

/** Words that were written to the console meanwhile. */
export async function consoleOf(work) {
  const said = [];
  const before = { warn: console.warn, error: console.error };
  console.warn = console.error = (...words) => void said.push(words.map(String).join(" "));
  try {
    await work();
  } finally {
    Object.assign(console, before);
  }
  return said;
}
