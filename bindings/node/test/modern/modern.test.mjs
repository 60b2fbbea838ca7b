// What only newer versions of Node have: `await using`, and `node:sqlite`. Run by `npm run test:modern`.
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";

import { Election } from "tenure";
import { StaleTerm, check, checkSync } from "tenure/fence";

import { elect, sqlite } from "../native-support.mjs";

test("await using gives a reign and an election back", async (t) => {
  const url = sqlite(t);
  const asks = await elect(t, "using", url, { start: false });
  {
    await using election = await Election.open("using", url, { ttl: "10m", start: false });
    for await (const reign of election.reigns()) {
      await using held = reign;
      assert.equal((await asks.currentLeader()).term, held.term);
      break;
    }
    await election.start();
    election.done(1);
  }
  assert.equal(await asks.currentLeader(), null);
});

test("a stale term commits nothing with node:sqlite", async () => {
  const database = new DatabaseSync(":memory:");
  database.exec("CREATE TABLE effect (term INTEGER)");
  const write = (term) => {
    checkSync(database, "fenced", term);
    database.prepare("INSERT INTO effect VALUES (?)").run(term);
    database.exec("COMMIT");
  };
  write(41);
  write(42);
  assert.throws(() => write(41), (error) => error instanceof StaleTerm && /42 leads/.test(error.message));
  database.exec("ROLLBACK");
  database.exec("BEGIN IMMEDIATE");
  await check(database, "fenced", 42);
  database.exec("COMMIT");
  assert.deepEqual(database.prepare("SELECT term FROM effect").all().map(({ term }) => term), [41, 42]);
  assert.throws(() => checkSync({}, "fenced", 1), /does not know/);
});
