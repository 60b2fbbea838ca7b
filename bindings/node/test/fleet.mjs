// Fleets of real processes that are killed, frozen and stopped, judged from outside.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { TENURE, until } from "./support.mjs";

const WORKER = fileURLToPath(new URL("worker.mjs", import.meta.url));
export const FAULTS = Number(process.env.TENURE_TEST_FAULTS ?? 36);
const now = () => Number(process.hrtime.bigint()) / 1e6;

class Worker {
  static serial = 0;
  beliefs = [];
  isStarted = false;
  words = { written: 0, refused: 0 };

  constructor(kind, url, name, ttl, [program, args] = [process.execPath, [WORKER, kind, url, name, String(ttl)]]) {
    this.kind = kind;
    this.label = `${kind} ${++Worker.serial}`;
    this.process = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
    this.ended = new Promise((resolve) => this.process.on("close", resolve));
    createInterface({ input: this.process.stdout }).on("line", (line) => {
      if (line === "started") this.isStarted = true;
      if (line in this.words) this.words[line] += 1;
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

/** The command takes part: it believes from `elected` on, until it says `draining` or is killed. */
class Command extends Worker {
  kind = "command";
  #reign = 0;
  #leads = false;

  constructor(url, name, ttl) {
    super("command", url, name, ttl, [TENURE, ["campaign", name, "--store", url, "--ttl", `${ttl}ms`, "--json"]]);
    createInterface({ input: this.process.stdout }).on("line", (line) => {
      const { event } = JSON.parse(line);
      this.isStarted = true;
      if (event === "elected") [this.#leads, this.#reign] = [true, this.#reign + 1];
      if (event === "draining" || event === "stepped_down") this.#leads = false;
      if (event === "elected") this.#note();
    });
  }

  // When it was told is when this process read it: later than it believed, so no overlap is made up.
  #note() {
    this.beliefs.push({ reign: this.#reign, before: now(), after: now() });
  }

  believedAfter = () => this.#leads;

  async end(signal) {
    // It leads at this instant, and is about to be told.
    if (this.#leads && this.process.exitCode === null) this.#note();
    await super.end(signal);
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
export function overlaps(workers) {
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

const make = (kind, url, name, ttl) =>
  kind === "command" ? new Command(url.native, name, ttl) : new Worker(kind, kind === "native" ? url.native : url.plain, name, ttl);

export async function fleet(kinds, given, name, ttl, faults) {
  const url = typeof given === "string" ? { native: given, plain: given } : given;
  const everybody = kinds.map((kind) => make(kind, url, name, ttl));
  const alive = [...everybody];
  try {
    for (const one of everybody) await one.started();
    for (let fault = 0; fault < faults; fault++) {
      const hit = await leader(alive, now());
      let how = ["freeze", "kill", "stop", "block"][fault % (kinds.includes("native") ? 4 : 3)];
      // A frozen old leader believes again when it wakes. That fault is known. Of the command we see no belief meanwhile.
      if (/^(old|command)/.test(hit.kind) && how === "freeze") how = "kill";
      if (hit.kind !== "native" && how === "block") how = "stop";
      if (how === "block") {
        const at = now();
        hit.process.kill("SIGUSR2");
        await leader(alive.filter((one) => one !== hit), at + ttl / 2);
        continue;
      }
      if (how === "freeze") {
        const at = now();
        hit.process.kill("SIGSTOP");
        await leader(alive.filter((one) => one !== hit), at + ttl / 2);
        hit.process.kill("SIGCONT");
        continue;
      }
      await hit.end(how === "kill" ? "SIGKILL" : "SIGTERM");
      const fresh = make(hit.kind, url, name, ttl);
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
  return everybody;
}
