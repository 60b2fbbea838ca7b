/**
 * `createLeader(client, options)` of the Redis lease, with tenure's rules.
 *
 * The lease key holds `instanceId` verbatim, as old clients have it; what tells two instances with
 * one id apart, and the term, are in the notes beside it, which tenure's own store reads too. The
 * client handed in is used itself, with plain `eval` and `get`; no connection is opened.
 */
import { Driver, incarnation, quietly, type Answer, type Transport } from "./driver.js";
import { timingOf } from "./engine.js";
import { ACQUIRE, PLAIN_ACQUIRE, PLAIN_RELEASE, PLAIN_RENEW, RELEASE, RENEW } from "./redis-scripts.js";

export interface LeaderOptions {
  /** 'leader' unless given; the prefix of the client comes before it. */
  key?: string;
  /** Random unless given. */
  instanceId?: string;
  /** 30,000 unless given. */
  leaseMs?: number;
  /** The documented name of `leaseMs`. */
  leaseTtlMs?: number;
  /** A third of the lease unless given. */
  renewMs?: number;
  onError?: (error: Error) => void;
  /** The label `key_class` of a key: its leading colon segment unless given. */
  mapKey?: (key: string) => string;
  breaker?: { success?(): void; failure?(error: Error): void };
  /** Has `counter(name, help, labels)`, or is a registry of prom-client. */
  metrics?: any;
}

export interface Leader {
  /** Synchronous, no I/O; false by itself when trust ends. */
  readonly isLeader: () => boolean;
  /** Who holds the lease, or null; null also if Redis can't be asked. */
  readonly currentLeader: () => Promise<string | null>;
  /** Gives the lease back. Never rejects; takes at most min(lease / 6, 5 s). */
  readonly stop: () => Promise<void>;
  readonly instanceId: string;
  readonly key: string;
}

/** Returns at once; the first attempt is under way then. */
export function createLeader(client: any, options: LeaderOptions = {}): Leader {
  const redis = recognise(client);
  const { key = "leader", onError, mapKey, breaker, metrics } = options;
  const instanceId = options.instanceId ?? incarnation().slice(0, 16);
  text("key", key);
  text("instanceId", instanceId);
  if (onError !== undefined && typeof onError !== "function") {
    throw new TypeError("onError must be a function");
  }
  if (mapKey !== undefined && typeof mapKey !== "function") {
    throw new TypeError("mapKey must be a function");
  }
  const { leaseMs, renewMs } = timings(options);
  const names = keysOf(redis, key);
  const count = counters(metrics, (mapKey ?? leadingSegment)(key));
  const failed = (error: unknown) => {
    const real = error instanceof Error ? error : new Error(String(error));
    quietly(() => breaker?.failure?.(real));
    quietly(() => onError?.(real));
  };
  const lease = new Lease(redis, names, instanceId, leaseMs, failed);
  const driver = new Driver(
    lease,
    timingOf(leaseMs, renewMs),
    {
      onBecome: () => count("acquired"),
      onLose: (reason) => {
        if (reason !== "resigned") count("lost");
      },
      onAnswer: (verb, answer) => {
        quietly(() => breaker?.success?.());
        if (verb === "renew" && answer.granted) count("renewals");
      },
      onUnknown: (verb, error) => {
        if (verb !== "release") count("renewal_failures");
        failed(error);
      },
      unref: true,
    },
    // Counting is no work: those who were told "you lead" still have the drain.
    { failClosed: true, hasLose: false },
  );
  void driver.start();
  return {
    isLeader: () => driver.isLeader(),
    currentLeader: async () => {
      try {
        if (!redis.isReady() && !redis.isConnecting()) throw new Error(AWAY);
        return await bounded(redis.get(names.lease), leaseMs / 6);
      } catch (error) {
        failed(error);
        return null;
      }
    },
    stop: () => driver.stop(),
    instanceId,
    key: names.shown,
  };
}

export default createLeader;

const AWAY = "the Redis client is not connected";

/** What is needed of a client, whichever it is. */
interface Redis {
  /** What stands before each key: by the wrapper, and by the client itself. */
  prefix: string;
  ownPrefix: string;
  isReady(): boolean;
  /** It connects for the first time, or again. */
  isConnecting(): boolean;
  get(key: string): Promise<string | null>;
  eval(script: string, keys: string[], args: string[]): Promise<any>;
}

function recognise(client: any): Redis {
  const isWrapper = client?.redis && typeof client.key === "function";
  const redis = isWrapper ? client.redis : client;
  if (typeof redis?.eval !== "function" || typeof redis.get !== "function") {
    throw new TypeError("the client must be ioredis, node-redis, or a wrapper with `redis` and `key()`");
  }
  const prefix: string = isWrapper ? client.key("") : "";
  const get = (key: string) => redis.get(key) as Promise<string | null>;
  if (typeof redis.isReady === "boolean") {
    return {
      prefix,
      ownPrefix: "",
      isReady: () => redis.isReady,
      isConnecting: () => redis.isOpen === true,
      get,
      eval: (script, keys, args) => redis.eval(script, { keys, arguments: args }),
    };
  }
  return {
    prefix,
    ownPrefix: redis.options?.keyPrefix ?? "",
    isReady: () => redis.status === undefined || redis.status === "ready",
    isConnecting: () => {
      // One that was made lazily connects when it is first used.
      if (redis.status === "wait") redis.connect?.()?.catch?.(() => {});
      return ["wait", "connecting", "connect"].includes(redis.status);
    },
    get,
    eval: (script, keys, args) => redis.eval(script, keys.length, ...keys, ...args),
  };
}

interface Keys {
  lease: string;
  notes: string;
  left: string;
  shown: string;
}

/** The notes lie where tenure's own store keeps them, in the slot of the lease (R4). */
function keysOf(redis: Redis, key: string): Keys {
  const lease = redis.prefix + key;
  const whole = redis.ownPrefix + lease;
  const tagged = /\{[^}]+\}/.test(whole);
  const notes = tagged ? `${lease}:tenure:own` : `${redis.prefix}{${whole}}:tenure`;
  return { lease, notes, left: `${notes}:left`, shown: redis.prefix ? lease : whole };
}

class Lease implements Transport {
  private readonly incarnation = incarnation();
  /** The notes are out of reach: the old protocol alone, which keeps no term. */
  private isPlain = false;
  private localTerm = 0;

  constructor(
    private readonly redis: Redis,
    private readonly keys: Keys,
    private readonly id: string,
    private readonly ttl: number,
    private readonly tell: (error: Error) => void,
  ) {}

  async acquire(seq: number, above: number, signal: AbortSignal): Promise<Answer> {
    // A client that was just made is given the time to connect. A renewal waits for nothing.
    while (!this.redis.isReady() && this.redis.isConnecting() && !signal.aborted) await pause();
    if (!this.isPlain) {
      try {
        const args = [this.id, this.incarnation, this.ttl, seq, above];
        return answer(await this.run(ACQUIRE, this.all(), args));
      } catch (error) {
        const words = String((error as Error)?.message);
        if (!/NOPERM|unrecognized eval/i.test(words)) throw error;
        this.isPlain = true;
        this.tell(new Error(
          `tenure can't keep notes in ${this.keys.notes} (${words}): two instances with one ` +
            "instanceId would both lead; permit that key",
        ));
      }
    }
    const taken = await this.run(PLAIN_ACQUIRE, [this.keys.lease], [this.id, this.ttl]);
    if (!taken) return { granted: false };
    this.localTerm = Math.max(this.localTerm, above) + 1;
    return { granted: true, term: this.localTerm };
  }

  async renew(term: number): Promise<Answer> {
    if (this.isPlain) {
      const kept = await this.run(PLAIN_RENEW, [this.keys.lease], [this.id, this.ttl]);
      return kept ? { granted: true, term } : { granted: false };
    }
    return answer(await this.run(RENEW, this.all(), [this.id, this.incarnation, term, this.ttl]));
  }

  async release(term: number, seq: number): Promise<Answer> {
    if (this.isPlain) await this.run(PLAIN_RELEASE, [this.keys.lease], [this.id]);
    else await this.run(RELEASE, this.all(), [this.id, this.incarnation, term, seq]);
    return { granted: false };
  }

  private all(): string[] {
    return [this.keys.lease, this.keys.notes, `${this.keys.left}:${this.incarnation}`];
  }

  /** Nothing is sent unless the client is ready: a command that queues would be granted too late. */
  private async run(script: string, keys: string[], args: (string | number)[]): Promise<any> {
    if (!this.redis.isReady()) throw new Error(AWAY);
    return this.redis.eval(script, keys, args.map(String));
  }
}

/** `[1, term]` or `[0, remaining]`. */
function answer(reply: any): Answer {
  const [granted, value] = [Number(reply?.[0]), Number(reply?.[1])];
  if (granted === 1 && Number.isSafeInteger(value)) return { granted: true, term: value };
  if (granted === 0) return { granted: false, remaining: value >= 0 ? value : null };
  throw new TypeError(`not an answer of the lease script: ${JSON.stringify(reply)}`);
}

function timings(options: LeaderOptions): { leaseMs: number; renewMs: number } {
  const { leaseMs, leaseTtlMs } = options;
  if (leaseMs !== undefined && leaseTtlMs !== undefined && leaseMs !== leaseTtlMs) {
    throw new RangeError(`leaseMs is ${leaseMs} and leaseTtlMs is ${leaseTtlMs}; give one of them`);
  }
  const lease = leaseMs ?? leaseTtlMs ?? 30_000;
  const name = leaseMs === undefined && leaseTtlMs !== undefined ? "leaseTtlMs" : "leaseMs";
  const renew = options.renewMs ?? lease / 3;
  for (const [what, value] of [[name, lease], ["renewMs", renew]] as const) {
    if (typeof value !== "number" || !(value > 0 && value <= 86_400_000)) {
      throw new RangeError(`${what} must be a number of milliseconds above 0, not ${value}`);
    }
  }
  if (renew >= lease) {
    throw new RangeError(`renewMs must be < leaseMs: ${renew} is not below ${lease}`);
  }
  if (renew > lease / 3) {
    console.warn(`tenure: renewMs is ${renew}, more than a third of the lease (${lease})`);
  }
  return { leaseMs: Math.ceil(lease), renewMs: renew };
}

function text(name: string, value: unknown): void {
  if (typeof value !== "string" || value === "") {
    throw new TypeError(`${name} must be a text that is not empty`);
  }
}

function leadingSegment(key: string): string {
  return key.split(":")[0] || key;
}

type Counted = "acquired" | "lost" | "renewals" | "renewal_failures";

const HELP: Record<Counted, string> = {
  acquired: "Times this instance became leader",
  lost: "Times this instance lost leadership",
  renewals: "Renewals that were granted",
  renewal_failures: "Renewals and attempts whose outcome is unknown",
};

/** The four counters, wherever they are kept. */
function counters(metrics: any, keyClass: string): (what: Counted) => void {
  if (!metrics) return () => {};
  const make = (what: Counted): any => {
    const name = `leader_${what}_total`;
    if (typeof metrics.counter === "function") return metrics.counter(name, HELP[what], ["key_class"]);
    return metrics.getSingleMetric(name) ?? register(metrics, name, HELP[what]);
  };
  if (typeof metrics.counter !== "function" && typeof metrics.registerMetric !== "function") {
    throw new TypeError("metrics must have counter(name, help, labels), or be a prom-client registry");
  }
  const made: Record<string, any> = {};
  for (const what of Object.keys(HELP) as Counted[]) made[what] = make(what);
  return (what) => quietly(() => made[what].inc({ key_class: keyClass }));
}

/** A counter that a registry of prom-client takes for one of its own. */
function register(registry: any, name: string, help: string): any {
  const values = new Map<string, number>();
  const counter = {
    name, help, type: "counter", aggregator: "sum", labelNames: ["key_class"],
    inc: ({ key_class: label }: { key_class: string }) =>
      void values.set(label, (values.get(label) ?? 0) + 1),
    reset: () => values.clear(),
    get: () => ({
      name, help, type: "counter", aggregator: "sum",
      values: [...values].map(([label, value]) => ({ value, labels: { key_class: label } })),
    }),
  };
  registry.registerMetric(counter);
  return counter;
}

function pause(): Promise<void> {
  return new Promise((resolve) => {
    (setTimeout(resolve, 10) as { unref?: () => void }).unref?.();
  });
}

/** A call that may hang, for so long at most. */
function bounded<T>(call: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${Math.round(ms)} ms`)), ms);
    (timer as { unref?: () => void }).unref?.();
    Promise.resolve(call).then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
