// What the tests of the native package share.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before } from "node:test";
import { fileURLToPath } from "node:url";

import { Election } from "tenure";

import { POSTGRES, REDIS, makeDatabase, unique, until, withPostgres, withRedis } from "./support.mjs";

const PROJECT = fileURLToPath(new URL("..", import.meta.url));

// Nothing of tenure keeps the event loop alive, and a test that waits for it must not end before.
let alive;
before(() => (alive = setInterval(() => {}, 1e6)));
after(() => clearInterval(alive));

const cleanups = new WeakMap();

/** Does this at the end of the test: what was begun last ends first. */
export function atEnd(t, work) {
  if (!cleanups.has(t)) {
    const stack = [];
    cleanups.set(t, stack);
    t.after(async () => {
      while (stack.length) await stack.pop()();
    });
  }
  cleanups.get(t).push(work);
}

/** A SQLite store of its own, and what removes it. */
export function sqlite(t) {
  const home = mkdtempSync(join(tmpdir(), "tenure-native-"));
  atEnd(t, () => rmSync(home, { recursive: true, force: true }));
  return `sqlite:${join(home, "tenure.db")}`;
}

/** Each kind of store, with what a test of it needs, and how to get one. */
export const STORES = [
  { kind: "SQLite", needs: {}, open: async (t) => sqlite(t) },
  {
    kind: "Postgres", needs: withPostgres,
    open: async (t) => {
      const { url, force } = await makeDatabase(true);
      atEnd(t, force);
      return url;
    },
  },
  { kind: "Redis", needs: withRedis, open: async () => `${REDIS.replace(/\/\d*$/, "")}/0?settle=off&prefix=${unique("n")}:` },
  { kind: "advisory locks", needs: withPostgres, open: async () => POSTGRES.replace(/^postgres(ql)?:/, "postgres+advisory:") },
];

/** An election that is stopped at the end of the test, whatever came of it. */
export async function elect(t, name, url, options) {
  const election = await Election.open(name, url, options);
  atEnd(t, () => election.stop().catch(() => {}));
  return election;
}

/** Takes part, and waits until this one leads: on a busy machine the first attempt may come to nothing. */
export async function begin(election) {
  await election.start();
  await until(() => election.peekTerm() !== null, 60_000, "it does not lead");
}
/** A process that runs this code, with what it writes. */
export class Child {
  lines = [];
  #waiting = [];

  constructor(t, code) {
    const head = 'import { Election, Cron, Candidate } from "tenure"; const say = (...words) => console.log(words.join(" "));\n'
      + "const begin = async (one) => { await one.start(); while (one.peekTerm() === null) await new Promise((go) => setTimeout(go, 5)); };\n";
    const args = ["--input-type=module", "-e", head + code];
    this.process = spawn(process.execPath, args, { cwd: PROJECT, stdio: ["pipe", "pipe", "inherit"] });
    this.ended = new Promise((resolve) => this.process.on("close", (code, signal) => resolve({ code, signal })));
    this.ended.then(() => this.#tell());
    createInterface({ input: this.process.stdout }).on("line", (line) => {
      this.lines.push(line);
      this.#tell();
    });
    atEnd(t, () => this.process.kill("SIGKILL"));
  }

  /** Waits until it has written such a line, or has ended. */
  async says(start) {
    for (;;) {
      const found = this.lines.find((line) => line.startsWith(start));
      if (found !== undefined) return found;
      if (this.process.exitCode !== null || this.process.signalCode !== null) {
        await this.ended;
        const late = this.lines.find((line) => line.startsWith(start));
        if (late !== undefined) return late;
        throw new Error(`it never said ${start}: ${JSON.stringify(this.lines)}`);
      }
      await new Promise((resolve) => this.#waiting.push(resolve));
    }
  }

  #tell() {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
