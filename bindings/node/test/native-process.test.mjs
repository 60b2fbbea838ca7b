// Elections of the native package in processes of their own: how they end, and what a blocked loop keeps.
import assert from "node:assert/strict";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Child, STORES, atEnd, elect, sqlite } from "./native-support.mjs";
import { unique, until } from "./support.mjs";

// Long enough that nothing here is explained by a lease that ran out.
const LONG = '{ ttl: "10m", renewEvery: "500ms", drain: "1s" }';

/** How a process may end, and what becomes of its lease. */
const ENDS = {
  "comes to its end": "",
  "calls process.exit": 'process.exit(3);',
  "throws": 'throw new Error("as the test wants it");',
  "rejects": 'Promise.reject(new Error("as the test wants it"));',
  "holds a reign and comes to its end": 'await election.stop(); for await (const reign of election.reigns()) { say("reign", reign.term); break; }',
};

for (const [how, code] of Object.entries(ENDS)) {
  test(`a process that ${how} gives its lease back, and nothing keeps it`, async (t) => {
    const url = sqlite(t);
    const child = new Child(t, `
      process.on("uncaughtException", () => process.exit(4));
      const election = await Election.open("exits", ${JSON.stringify(url)}, ${LONG});
      await begin(election);
      say("leads", election.isLeader());
      ${code}
    `);
    await child.says("leads true");
    await child.ended;
    const election = await elect(t, "exits", url, { start: false });
    assert.equal(await election.currentLeader(), null);
  });
}

test("a reign that nobody gave back is given back at the end of the process", async (t) => {
  const url = sqlite(t);
  const child = new Child(t, `
    const election = await Election.open("holds", ${JSON.stringify(url)}, ${LONG});
    election.lead(async (reign) => { say("leads", reign.term); await new Promise(() => {}); });
    await new Promise((resolve) => process.stdin.once("data", resolve));
    process.exit(0);
  `);
  await child.says("leads 1");
  child.process.stdin.write("go\n");
  assert.deepEqual(await child.ended, { code: 0, signal: null });
  const election = await elect(t, "holds", url, { start: false });
  assert.equal(await election.currentLeader(), null);
});

test("ref keeps the process, unref lets it go", async (t) => {
  const url = JSON.stringify(sqlite(t));
  const code = (first) => `
    const election = await Election.open("ref", ${url}, ${LONG});
    await election.start();
    ${first}
    setTimeout(() => { say("still here"); election.unref(); }, 50).unref();
  `;
  const [kept, gone] = [new Child(t, code("election.ref();")), new Child(t, code("election.ref().unref();"))];
  await kept.says("still here");
  assert.equal((await kept.ended).code, 0);
  assert.equal((await gone.ended).code, 0);
  assert.deepEqual(gone.lines, []);
});

test("a call that waits to lead keeps the process, and unref lets it go all the same", async (t) => {
  const url = JSON.stringify(sqlite(t));
  const child = new Child(t, `
    const election = await Election.open("waits", ${url}, ${LONG});
    say(await election.lead((reign) => "led " + reign.term));
    for await (const reign of election.reigns()) { say("again", reign.term); break; }
    election.unref();
    void election.lead(() => say("never"));
  `);
  assert.equal((await child.ended).code, 0);
  assert.deepEqual(child.lines, ["led 1", "again 2"]);
});

test("stopOnSignals gives the lease back, and the signal ends the process", async (t) => {
  const url = sqlite(t);
  const child = new Child(t, `
    const election = await Election.open("signals", ${JSON.stringify(url)}, ${LONG});
    election.stopOnSignals();
    election.ref();
    await election.lead(async ({ signal }) => {
      say("leads");
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      say("wound up", signal.reason.reason);
    });
  `);
  await child.says("leads");
  child.process.kill("SIGTERM");
  assert.deepEqual(await child.ended, { code: null, signal: "SIGTERM" });
  assert.deepEqual(child.lines, ["leads", "wound up resigned"]);
  const election = await elect(t, "signals", url, { start: false });
  assert.equal(await election.currentLeader(), null);
});

for (const how of ["worker.terminate()", "process.exit() in it", "the end of its code"]) {
  test(`a worker thread gives its leases back at ${how}, and others go on`, async (t) => {
    const url = JSON.stringify(sqlite(t));
    const inside = `
      import { Election } from "tenure";
      import { parentPort } from "node:worker_threads";
      const election = await Election.open("worker", ${url}, ${LONG});
      await election.start();
      while (election.peekTerm() === null) await new Promise((go) => setTimeout(go, 5));
      parentPort.postMessage(election.term);
      ${how.startsWith("worker") ? "election.ref();" : how.startsWith("process") ? "process.exit();" : ""}
    `;
    const child = new Child(t, `
      import { Worker } from "node:worker_threads";
      const own = await Election.open("own", ${url}, ${LONG});
      await begin(own);
      const asks = await Election.open("worker", ${url}, { start: false });
      for (let round = 1; round <= 3; round++) {
        const worker = new Worker(${JSON.stringify(inside)}, { eval: true });
        const ended = new Promise((resolve) => worker.once("exit", resolve));
        const term = await new Promise((resolve) => worker.once("message", resolve));
        ${how.startsWith("worker") ? "await worker.terminate();" : ""}
        await ended;
        say(term, JSON.stringify(await asks.currentLeader()), own.isLeader());
      }
      own.done(own.term);
      await own.stop();
      say("over");
    `);
    await child.says("over");
    assert.deepEqual(child.lines, ["1 null true", "2 null true", "3 null true", "over"]);
    assert.equal((await child.ended).code, 0);
  });
}

for (const { kind, needs, open } of STORES) {
  test(`a blocked loop keeps no lease, and knows it, on ${kind}`, { ...needs, timeout: 120_000 }, async (t) => {
    const [url, name, ttl] = [await open(t), unique("blocked"), 3_000];
    const child = new Child(t, `
      const election = await Election.open(${JSON.stringify(name)}, ${JSON.stringify(url)}, { ttl: ${ttl} });
      election.ref().on("lost", (term) => say("lost", term));
      await begin(election);
      let reign;
      void (async () => { for await (reign of election.reigns()) await new Promise((resolve) => reign.signal.addEventListener("abort", resolve)); })();
      while (!reign) await new Promise(setImmediate);
      say("leads", reign.term);
      process.stdin.once("data", () => {
        const until = performance.now() + ${2 * ttl};
        const answers = [];
        while (performance.now() < until) {
          const now = [election.isLeader(), reign.isLeader(), reign.isCurrent()].join();
          if (answers.at(-1) !== now) answers.push(now);
        }
        say("answers", answers.join(" "));
      });
    `);
    await child.says("leads");
    const other = await elect(t, name, url, { ttl, start: false });
    await other.start();
    const elected = new Promise((resolve) => other.on("elected", resolve));
    child.process.stdin.write("block\n");
    await elected;
    const told = await child.says("answers");
    // Each of the three never says yes again after a no, and ends with a no.
    const answers = told.split(" ").slice(1).map((three) => three.split(","));
    for (const at of [0, 1, 2]) assert.match(answers.map((three) => three[at]).join(" "), /^(true )+(false ?)+$/);
    await child.says("lost");
    assert.equal(other.isLeader(), true);
  });
}

test("a process that is killed leaves a lease that runs out, and the next term is another", async (t) => {
  const url = sqlite(t);
  const child = new Child(t, `
    const election = await Election.open("killed", ${JSON.stringify(url)}, { ttl: "2s" });
    election.ref();
    await begin(election);
    say("leads", election.term);
  `);
  await child.says("leads 1");
  child.process.kill("SIGKILL");
  const other = await elect(t, "killed", url, { ttl: "2s" });
  await until(() => other.isLeader(), 60_000);
  assert.equal(other.term, 2);
});

test("each process of a cluster is a candidate of its own", async (t) => {
  const url = JSON.stringify(sqlite(t));
  const home = mkdtempSync(join(tmpdir(), "tenure-cluster-"));
  atEnd(t, () => rmSync(home, { recursive: true, force: true }));
  mkdirSync(join(home, "node_modules"));
  symlinkSync(fileURLToPath(new URL("..", import.meta.url)), join(home, "node_modules", "tenure"));
  writeFileSync(join(home, "main.cjs"), `
    const cluster = require("node:cluster");
    const { Election } = require("tenure");
    if (cluster.isPrimary) {
      const told = [];
      for (let at = 0; at < 3; at++) cluster.fork();
      cluster.on("message", (worker, message) => {
        told.push(message);
        if (told.length < 3) return;
        console.log(told.filter(({ leads }) => leads).length <= 1, new Set(told.map(({ id }) => id)).size);
        for (const one of Object.values(cluster.workers)) one.kill();
      });
    } else {
      (async () => {
        const election = await Election.open("cluster", ${url}, { atOnce: true });
        await election.start();
        process.send({ leads: election.isLeader(), id: election.id });
      })();
    }
  `);
  assert.equal(execFileSync(process.execPath, [join(home, "main.cjs")], { encoding: "utf8" }).trim(), "true 3");
});

test("without a binary the import works, and open says which platform is missing", (t) => {
  const home = mkdtempSync(join(tmpdir(), "tenure-bare-"));
  atEnd(t, () => rmSync(home, { recursive: true, force: true }));
  const project = fileURLToPath(new URL("..", import.meta.url));
  const place = join(home, "node_modules", "tenure");
  cpSync(join(project, "package.json"), join(place, "package.json"));
  cpSync(join(project, "dist"), join(place, "dist"), { recursive: true, filter: (name) => !name.endsWith(".node") });
  writeFileSync(join(home, "a.mjs"), `
    import { Election, TenureError, nextTicks } from "tenure";
    try {
      await Election.open("a", "sqlite:a.db");
    } catch (error) {
      console.log(error instanceof TenureError, error.code, error.message);
    }
  `);
  const said = execFileSync(process.execPath, ["a.mjs"], { cwd: home, encoding: "utf8" });
  assert.match(said, new RegExp(`^true TENURE_UNSUPPORTED tenure has no native part for ${process.platform}-${process.arch}`));
});
