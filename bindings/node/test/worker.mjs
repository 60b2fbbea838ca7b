// One candidate in a process of its own. It writes down when it believed that it leads.
// `node worker.mjs KIND URL NAME TTL_MS`. Each line is a belief: reign, before and after the question.
import pg from "pg";
import { Redis } from "ioredis";
import { createLeaderElector } from "tenure/compat/advisory";
import { LeaderElection } from "tenure/compat/leader-election";
import { createLeader } from "tenure/compat/redis-leader";

import { OldLease, OldLock, OldTable } from "./old.mjs";

const [kind, url, name, ttlText] = process.argv.slice(2);
const ttl = Number(ttlText);
// All processes of a host share this clock.
const now = () => Number(process.hrtime.bigint()) / 1e6;

const isRedis = kind.includes("redis");
const pool = isRedis ? null : new pg.Pool({ connectionString: url });
pool?.on("error", () => {});
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
  "old table": () => new OldTable(pool, name, ttl).start(),
  "old redis": () => new OldLease(redis, name, ttl).start(),
  "old advisory": () => new OldLock(pool, name, ttl).start(),
};

const one = await makers[kind]();
console.log("started");
let [isStopped, reign, believed] = [false, 0, false];
process.on("SIGTERM", () => (isStopped = true));
while (!isStopped) {
  const before = now();
  const believes = one.leads(now);
  const after = now();
  if (believes && !believed) reign += 1;
  believed = believes;
  if (believes) console.log(`${reign} ${before} ${after}`);
  await new Promise((resolve) => setTimeout(resolve, 4));
}
await one.stop();
// An old client leaves its session open; the server ends it with the process.
process.exit(0);
