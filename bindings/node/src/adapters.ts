/** Between an election and the schedulers and frameworks that people have. */
import { wait, watch } from "./bridge.js";
import { Election, insideOf, type ElectionOptions } from "./election.js";
import { TenureError, native } from "./errors.js";
import type { NativeWork } from "./native.js";
import type { Reign } from "./reign.js";
import { callable, shown } from "./values.js";

/** For `setRunCoordinator` of node-cron: a tick runs on the leader, once, as the ledger of the store has it. */
export function runCoordinator(election: Election): {
  shouldRun(key: string, ttlMs: number): Promise<boolean>;
  onComplete(key: string): Promise<void>;
} {
  const inside = insideOf(election);
  const running = new Map<string, { work: NativeWork; job: string; at: number; attempt: number; unwatch: () => void }>();
  return {
    async shouldRun(key) {
      const [job, at] = tickOf(key);
      const work = native(() => inside.native.enter());
      const op = work?.takeOp();
      if (!work || !op) return false;
      // Registered until it is complete: the lease is not given back before.
      const unwatch = watch(op, () => {});
      const done = () => {
        work.end();
        unwatch();
      };
      try {
        const told = await wait(native(() => inside.native.claimTick(job, at, work.term)));
        const attempt = JSON.parse(told as string) as number | null;
        if (attempt === null) return done(), false;
        running.set(key, { work, job, at, attempt, unwatch });
        return true;
      } catch (error) {
        done();
        throw error;
      }
    },
    async onComplete(key) {
      const one = running.get(key);
      if (!one) return;
      running.delete(key);
      try {
        await wait(native(() => inside.native.endTick(one.job, one.at, one.work.term, one.attempt)));
      } finally {
        one.work.end();
        one.unwatch();
      }
    },
  };
}

/** node-cron's keys end with the instant. */
function tickOf(key: string): [string, number] {
  const parts = /^(.+):(\d{4}-\d\d-\d\dT[\d:.]+Z)$/.exec(key);
  if (!parts?.[1] || !parts[2]) throw new TenureError("config", `the key ${shown(key)} has no instant at its end`);
  return [parts[1], Date.parse(parts[2])];
}

/** Starts something each time this instance leads, and stops it when leadership ends, before the lease is given back. */
export async function whileLeading(
  election: Election,
  what: { start(reign: Reign): unknown; stop(reign: Reign): unknown },
  options: { signal?: AbortSignal } = {},
): Promise<void> {
  callable("start", what.start);
  callable("stop", what.stop);
  for await (const reign of election.reigns(options)) {
    try {
      await what.start(reign);
      if (!reign.signal.aborted) await new Promise((resolve) => reign.signal.addEventListener("abort", resolve, { once: true }));
    } finally {
      await what.stop(reign);
      await reign.resign();
    }
  }
}

interface Fastify {
  decorate(name: string, value: unknown): unknown;
  addHook(name: "onClose", hook: () => Promise<void>): unknown;
  get(path: string, handler: (request: unknown, reply: { code(status: number): { send(body: unknown): unknown } }) => Promise<unknown>): unknown;
}

export interface FastifyOptions {
  election: Election | { name: string; store?: string; options?: ElectionOptions };
  path?: string | false;
}

/** A plugin for Fastify: `app.election`, and a path that answers 200 on the leader and 503 elsewhere. */
export async function fastifyTenure(app: Fastify, given: FastifyOptions): Promise<void> {
  const made = given.election;
  const election = made instanceof Election ? made : await Election.open(made.name, made.store, made.options);
  app.decorate("election", election);
  const { path = "/leader" } = given;
  if (path !== false) {
    app.get(path, async (_, reply) => {
      const leads = election.isLeader();
      const leader = leads ? null : await election.currentLeader().catch(() => null);
      return reply.code(leads ? 200 : 503).send({ leads, term: election.peekTerm(), leader });
    });
  }
  // One that was handed in belongs to somebody else.
  if (made !== election) app.addHook("onClose", () => election.stop());
}
Object.assign(fastifyTenure, { [Symbol.for("skip-override")]: true, [Symbol.for("fastify.display-name")]: "tenure" });
