// The public types of `tenure/adapters`, by hand.
import type { Election, ElectionOptions, Reign } from "./index.js";

/**
 * For `setRunCoordinator`, or the option `runCoordinator` of a task, of node-cron: a tick of a `distributed` task runs on
 * the leader, once, as the ledger of the store has it. The lease is not given back before the task is complete.
 */
export function runCoordinator(election: Election): {
  shouldRun(key: string, ttlMs: number): Promise<boolean>;
  onComplete(key: string): Promise<void>;
};

/**
 * Starts something each time this instance leads, and stops it when leadership ends, before the lease is given back: a
 * consumer, a scheduler. Resolves once the election is stopped.
 */
export function whileLeading(
  election: Election,
  what: { start(reign: Reign): unknown; stop(reign: Reign): unknown },
  options?: { signal?: AbortSignal },
): Promise<void>;

export interface FastifyOptions {
  /** An election, which stays yours, or how to open one, which is stopped with the server. */
  election: Election | { name: string; store?: string; options?: ElectionOptions };
  /** Answers 200 on the leader and 503 elsewhere. Default: `/leader`. */
  path?: string | false;
}

/** A plugin for Fastify: `app.election`, and a path for load balancers. */
export function fastifyTenure(app: any, options: FastifyOptions): Promise<void>;
