// Fleets of real processes that are killed, frozen and stopped, judged from outside.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { POSTGRES, REDIS, makeDatabase, sleep, unique, until, withPostgres, withRedis } from "./support.mjs";

const WORKER = fileURLToPath(new URL("worker.mjs", import.meta.url));
const FAULTS = Number(process.env.TENURE_TEST_FAULTS ?? 36);
const now = () => Number(process.hrtime.bigint()) / 1e6;

class Worker {
  static serial = 0;
  beliefs = [];
  isStarted = false;

  constructor(kind, url, name, ttl) {
    this.kind = kind;
    this.label = `${kind} ${++Worker.serial}`;
    this.process = spawn(process.execPath, [WORKER, kind, url, name, String(ttl)], { stdio: ["ignore", "pipe", "inherit"] });
    this.ended = new Promise((resolve) => this.process.on("close", resolve));
    createInterface({ input: this.process.stdout }).on("line", (line) => {
      if (line === "started") this.isStarted = true;
      const [reign, before, after] = line.split(" ").map(Number);
      if (after > 0) this.beliefs.push({ reign, before, after });
    });
  }

  started = () => until(() => this.isStarted, 30_000, `${this.label} did not start`);
  believedAfter = (instant) => (this.beliefs.at(-1)?.before ?? 0) > instant;

  async end(signal) {
    this.process.kill("SIGCONT");
    this.process.kill(signal);
    await this.ended;
  }
}

/** Between its first and its last belief of one reign, an instance certainly believed. */
function reigns({ beliefs, label }) {
  const spans = new Map();
  for (const { reign, before, after } of beliefs) {
    const span = spans.get(reign);
    if (span) span.last = before;
    else spans.set(reign, { first: after, last: after, label });
  }
  return [...spans.values()].filter(({ first, last }) => first < last);
}

/** Instants at which two instances certainly believed that they lead. */
function overlaps(workers) {
  const found = [];
  let latest = { last: 0 };
  for (const span of workers.flatMap(reigns).sort((a, b) => a.first - b.first)) {
    if (span.first < latest.last && span.label !== latest.label) {
      found.push(`${span.label} from ${span.first} and ${latest.label} until ${latest.last}`);
    }
    if (span.last > latest.last) latest = span;
  }
  return found;
}

async function leader(workers, since) {
  let found;
  await until(() => (found = workers.find((one) => one.believedAfter(since))), 30_000, "nobody leads");
  return found;
}

test("the judge sees an overlap", () => {
  const told = (label, ...pairs) => ({ label, beliefs: pairs.map(([reign, at]) => ({ reign, before: at, after: at + 0.1 })) });
  const a = told("a", [1, 1], [1, 2], [2, 5], [2, 6]);
  const b = told("b", [1, 2.2], [1, 4]);
  const c = told("c", [1, 3], [1, 5.5]);
  assert.deepEqual(overlaps([a, b]), []);
  assert.equal(overlaps([a, b, c]).length, 2);
});

async function fleet(kinds, url, name, ttl, faults) {
  const everybody = kinds.map((kind) => new Worker(kind, url, name, ttl));
  const alive = [...everybody];
  try {
    for (const one of everybody) await one.started();
    for (let fault = 0; fault < faults; fault++) {
      const hit = await leader(alive, now());
      let how = ["freeze", "kill", "stop"][fault % 3];
      // A frozen old leader believes again when it wakes. That fault is known.
      if (hit.kind.startsWith("old") && how === "freeze") how = "kill";
      if (how === "freeze") {
        const at = now();
        hit.process.kill("SIGSTOP");
        await leader(alive.filter((one) => one !== hit), at + ttl / 2);
        hit.process.kill("SIGCONT");
        continue;
      }
      await hit.end(how === "kill" ? "SIGKILL" : "SIGTERM");
      const fresh = new Worker(hit.kind, url, name, ttl);
      alive.splice(alive.indexOf(hit), 1, fresh);
      everybody.push(fresh);
      await fresh.started();
    }
    await leader(alive, now());
  } finally {
    await Promise.all(alive.map((one) => one.end("SIGTERM")));
  }
  assert.deepEqual(overlaps(everybody), []);
  const begun = everybody.reduce((sum, { beliefs }) => sum + new Set(beliefs.map(({ reign }) => reign)).size, 0);
  assert.ok(begun > faults, "each fault ends a reign, and another begins");
}

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
