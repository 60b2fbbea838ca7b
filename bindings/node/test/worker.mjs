// One candidate in a process of its own. It writes down when it believed that it leads.
// `node worker.mjs KIND URL NAME TTL_MS`. Each line is a belief: reign, before and after the question.
import pg from "pg";
import { Redis } from "ioredis";
import { createLeaderElector } from "tenure/compat/advisory";
import { LeaderElection } from "tenure/compat/leader-election";
import { createLeader } from "tenure/compat/redis-leader";
import { Election } from "tenure";
import { check } from "tenure/fence";

import { OldLease, OldLock, OldTable } from "./old.mjs";

const [kind, url, name, ttlText] = process.argv.slice(2);
const ttl = Number(ttlText);
// All processes of a host share this clock.
const now = () => Number(process.hrtime.bigint()) / 1e6;

const isNative = kind === "native";
const isRedis = kind.includes("redis");
const pool = isRedis || (isNative && !url.startsWith("postgres:")) ? null : new pg.Pool({ connectionString: url });
pool?.on("error", () => {});
pool?.on("connect", (client) => client.on("error", () => {}));
const redis = isRedis ? new Redis(url) : null;
redis?.on("error", () => {});
console.warn = console.error = () => {};

const makers = {
  table: async () => {
    const election = new LeaderElection(pool, {
      serviceName: name, candidateId: "same", heartbeatIntervalMs: ttl / 3, heartbeatTimeoutSeconds: ttl / 1000,
    });
    await election.start();
    return { leads: () => election.isCurrentLeader(), stop: () => election.stop() };
  },
  redis: () => {
    const leader = createLeader(redis, { key: name, leaseMs: ttl });
    return { leads: leader.isLeader, stop: leader.stop };
  },
  advisory: () => {
    const elector = createLeaderElector({ pool, lock: name, poll: ttl / 3 });
    elector.start();
    return { leads: elector.isLeader, stop: elector.stop };
  },
  native: async () => {
    const election = await Election.open(name, url, { ttl });
    await election.start();
    if (pool) void writes(election);
    return { leads: () => election.isLeader(), stop: () => election.stop() };
  },
  "old table": () => new OldTable(pool, name, ttl).start(),
  "old redis": () => new OldLease(redis, name, ttl).start(),
  "old advisory": () => new OldLock(pool, name, ttl).start(),
};

/** Writes behind the fence all the while, also when it has been frozen: the database must refuse that. */
async function writes(election) {
  for (let term = null; !isStopped; await new Promise((resolve) => setTimeout(resolve, 20))) {
    // The latest term that it led, whether or not it still does.
    term = election.peekTerm() ?? term;
    if (term === null) continue;
    const client = await pool.connect().catch(() => null);
    let failure;
    try {
      await client.query("BEGIN");
      await check(client, name, term);
      await client.query("INSERT INTO effect (election, term) VALUES ($1, $2)", [name, term]);
      await client.query("COMMIT");
      console.log("written");
    } catch (error) {
      failure = error;
      if (error.code === "TENURE_STALE_TERM") console.log("refused");
    }
    // A connection in which something failed is not used again.
    client?.release(failure);
  }
}

let [isStopped, reign, believed] = [false, 0, false];
const one = await makers[kind]();
console.log("started");
const ask = () => {
  const before = now();
  const believes = one.leads(now);
  const after = now();
  if (believes && !believed) reign += 1;
  believed = believes;
  if (believes) console.log(`${reign} ${before} ${after}`);
};
process.on("SIGTERM", () => (isStopped = true));
// The loop is blocked for two leases, and asks all the while.
process.on("SIGUSR2", () => {
  for (const end = now() + 2 * ttl, every = 4; now() < end;) {
    ask();
    for (const next = now() + every; now() < next;);
  }
});
while (!isStopped) {
  ask();
  await new Promise((resolve) => setTimeout(resolve, 4));
}
await one.stop();
// An old client leaves its session open; the server ends it with the process.
process.exit(0);
