/**
 * `createLeaderElector(options)` of the advisory lock, with tenure's rules.
 *
 * One client of the pool is held for the lock and, with `channels`, a second for LISTEN. The server
 * ends a holder that gives no sign of life for a ttl, so that another takes over from a frozen one.
 */
import { Driver, quietly, type Answer, type Transport } from "./driver.js";
import { timingOf } from "./engine.js";

/** A client of `pg`, as far as it is used. */
export interface Client {
  query(sql: string, values?: unknown[]): Promise<{ rows: any[] }>;
  release(destroy?: boolean | Error): void;
  on(event: string, listener: (...args: any[]) => void): unknown;
  removeListener(event: string, listener: (...args: any[]) => void): unknown;
  processID?: number | null;
}

/** A `pg.Pool`, as far as it is used. */
export interface Pool {
  connect(): Promise<unknown>;
  query(text: string, ...args: unknown[]): Promise<unknown>;
}

/** In pino's order: `warn({ err }, message)`. Methods that are missing are ignored. */
export interface Logger {
  info?: (...args: any[]) => void;
  debug?: (...args: any[]) => void;
  warn?: (...args: any[]) => void;
  error?: (...args: any[]) => void;
}

export interface NotificationChannel<TPayload = any> {
  channel: string;
  onNotification: (payload: TPayload) => void | Promise<void>;
}

export interface LeaderElectorOptions {
  pool: Pool;
  /** A safe integer, a bigint or a decimal string. */
  lock: number | bigint | string;
  /** 10,000 ms unless given. The ttl is three times that, and at least 3 s. */
  poll?: number;
  channels?: NotificationChannel[];
  log?: Logger;
  onLeadershipChange?: ((isLeader: boolean) => unknown) | null;
}

export interface LeaderElector {
  /** Settles when it is stopped, and never rejects. */
  start(): Promise<void>;
  /** Returns its clients to the pool first. Never rejects. */
  stop(): Promise<void>;
  /** Sends JSON to the leader; works without a start. */
  notify(payload: unknown, channelName: string): Promise<void>;
  isLeader(): boolean;
}

const CHANNEL_MAX_BYTES = 63;
const PAYLOAD_MAX_BYTES = 7_999;
const TTL_MIN_MS = 3_000;

export function createLeaderElector(options: LeaderElectorOptions): LeaderElector {
  const { pool, poll = 10_000, channels, log = {}, onLeadershipChange } = options;
  if (!pool) throw new Error("pool is required");
  if (!options.lock) throw new Error("lock is required");
  const lock = lockOf(options.lock);
  if (typeof poll !== "number" || !(poll > 0 && poll <= 28_800_000)) {
    throw new RangeError(`poll must be a number of milliseconds above 0, not ${poll}`);
  }
  checkChannels(channels);
  const say = (level: keyof Logger, ...args: unknown[]) => quietly(() => log[level]?.(...args));
  const ttl = Math.max(poll * 3, TTL_MIN_MS);
  let driver: Driver | undefined;
  let holder: Holder | undefined;
  let running: Promise<void> | undefined;

  const make = (): Driver => {
    // A hand-over waits for a handler that runs, at most for the drain.
    const run: Run = (work) => made.runIfLeader(work);
    const own = (holder = new Holder(pool, lock, ttl, channels ?? [], say, run));
    const made: Driver = new Driver(own, timingOf(ttl, poll), {
      onBecome: () => {
        say("info", { lock }, "became the leader");
        return onLeadershipChange?.(true);
      },
      onLose: (reason) => {
        say("info", { lock, reason }, "is the leader no more");
        return onLeadershipChange?.(false);
      },
      onUnknown: (verb, err) => say("warn", { err }, `the outcome of ${verb} is unknown`),
      onTrouble: (what, err) => say("error", { err }, what),
    });
    return made;
  };

  return {
    start() {
      if (running) return running;
      const started = (driver = make());
      void started.start();
      running = started.over;
      return running;
    },
    async stop() {
      const [stopped, left] = [driver, holder];
      await stopped?.stop();
      left?.leave();
      if (driver === stopped) driver = running = undefined;
    },
    async notify(payload, channelName) {
      checkChannel(channelName);
      const json = JSON.stringify(payload);
      if (json === undefined) throw new TypeError("the payload is not JSON");
      const bytes = bytesOf(json);
      if (bytes > PAYLOAD_MAX_BYTES) {
        throw new RangeError(`the payload has ${bytes} bytes; ${PAYLOAD_MAX_BYTES} is the limit of NOTIFY`);
      }
      await pool.query("SELECT pg_notify($1, $2)", [channelName, json]);
    },
    isLeader: () => driver?.isLeader() ?? false,
  };
}

export default createLeaderElector;

type Run = (work: () => Promise<void>) => Promise<unknown>;
type Say = (level: keyof Logger, ...args: unknown[]) => void;

/** A client of the pool that is held. */
interface Held {
  client: Client;
  /** The backend that it talked to. */
  pid: number;
  isBroken: boolean;
  give(destroy: boolean): void;
}

/** The session that holds the lock, and the one that listens. */
class Holder implements Transport {
  private session: Held | undefined;
  private ears: Held | undefined;
  private term = 0;
  /** Handlers run one after the other. */
  private handled: Promise<void> = Promise.resolve();

  constructor(
    private readonly pool: Pool,
    private readonly lock: string,
    private readonly ttl: number,
    private readonly channels: NotificationChannel[],
    private readonly say: Say,
    private readonly run: Run,
  ) {}

  async acquire(_seq: number, above: number, signal: AbortSignal): Promise<Answer> {
    this.drop(true);
    const session = await this.take(signal);
    let isKept = false;
    try {
      const { rows } = await session.client.query(
        "SELECT pg_backend_pid() AS pid, pg_try_advisory_lock($1::bigint) AS yes", [this.lock],
      );
      if (rows[0].pid !== session.pid) throw new Error(POOLED);
      if (rows[0].yes !== true) return { granted: false };
      // Heard before anybody is told that this leads (M1).
      if (this.channels.length > 0) await this.listen(signal);
      if (signal.aborted) throw new Error("the lock came too late");
      this.session = session;
      isKept = true;
    } finally {
      // A session that may hold the lock must not go back to the pool.
      if (!isKept) {
        session.give(true);
        this.hush(true);
      }
    }
    this.term = Math.max(this.term, above) + 1;
    return { granted: true, term: this.term };
  }

  async renew(term: number): Promise<Answer> {
    const session = this.session;
    if (!session || session.isBroken || this.ears?.isBroken) {
      this.drop(true);
      return { granted: false };
    }
    // A sign of life, and whether the lock is still held by this very session.
    const { rows } = await session.client.query(HELD, [this.lock]);
    if (rows[0].pid === session.pid && rows[0].held === true) return { granted: true, term };
    if (rows[0].pid !== session.pid) this.say("error", { err: new Error(POOLED) }, POOLED);
    this.drop(true);
    return { granted: false };
  }

  async release(): Promise<Answer> {
    const session = this.session;
    if (session && !session.isBroken) {
      try {
        await session.client.query("SELECT pg_advisory_unlock($1::bigint)", [this.lock]);
        await session.client.query("RESET idle_session_timeout");
        await this.ears?.client.query("UNLISTEN *");
        this.drop(false);
      } catch {
        // The end of the session frees the lock.
      }
    }
    this.drop(true);
    return { granted: false };
  }

  /** Work still runs after a stop: its lock is not given back, it runs out (I8). */
  leave(): void {
    if (!this.session) return;
    const timer = setTimeout(() => this.drop(true), this.ttl);
    (timer as { unref?: () => void }).unref?.();
  }

  private drop(destroy: boolean): void {
    this.session?.give(destroy);
    this.session = undefined;
    this.hush(destroy);
  }

  private hush(destroy: boolean): void {
    this.ears?.give(destroy);
    this.ears = undefined;
  }

  private async take(signal: AbortSignal): Promise<Held> {
    const session = await this.checkOut(signal);
    try {
      try {
        await session.client.query(`SET idle_session_timeout = ${Math.ceil(this.ttl)}`);
      } catch (err) {
        // Before PostgreSQL 14 there is none, and nobody takes over from a frozen holder.
        this.say("warn", { err }, "this server can't end a holder that is frozen");
      }
      const { rows } = await session.client.query("SELECT pg_backend_pid() AS pid");
      session.pid = rows[0].pid;
      const own = session.client.processID;
      if (typeof own === "number" && own !== session.pid) await this.refusePooler(session, signal);
      return session;
    } catch (error) {
      session.give(true);
      throw error;
    }
  }

  /** Under transaction pooling, two clients of ours meet in one backend. */
  private async refusePooler(session: Held, signal: AbortSignal): Promise<void> {
    const other = await this.checkOut(signal);
    try {
      const { rows } = await other.client.query("SELECT pg_backend_pid() AS pid");
      if (rows[0].pid === session.pid) throw new Error(POOLED);
    } finally {
      other.give(true);
    }
  }

  /** A client of the pool, with a handler for its errors: without one they end the process. */
  private async checkOut(signal: AbortSignal): Promise<Held> {
    const client = (await this.pool.connect()) as Client;
    const held: Held = { client, pid: 0, isBroken: false, give: () => {} };
    const onError = (err: Error) => {
      held.isBroken = true;
      this.say("warn", { err }, "a connection of the elector was lost");
    };
    client.on("error", onError);
    let isGiven = false;
    held.give = (destroy) => {
      if (isGiven) return;
      isGiven = true;
      quietly(() => client.release(destroy || held.isBroken));
      // One that is destroyed may still say so.
      if (!destroy && !held.isBroken) client.removeListener("error", onError);
    };
    if (signal.aborted) {
      held.give(false);
      throw new Error("the pool had no client in time");
    }
    return held;
  }

  private async listen(signal: AbortSignal): Promise<void> {
    const ears = (this.ears = await this.checkOut(signal));
    const onNotification = (message: { channel: string; payload?: string }) => {
      if (this.ears === ears) this.hear(message.channel, message.payload ?? "");
    };
    ears.client.on("notification", onNotification);
    const give = ears.give;
    ears.give = (destroy) => {
      ears.client.removeListener("notification", onNotification);
      give(destroy);
    };
    for (const { channel } of this.channels) await ears.client.query(`LISTEN ${quoted(channel)}`);
  }

  private hear(name: string, payload: string): void {
    for (const { channel, onNotification } of this.channels) {
      if (channel !== name) continue;
      const handle = async () => {
        try {
          await onNotification(JSON.parse(payload));
        } catch (err) {
          this.say("warn", { err }, `a notification on ${channel} was not handled`);
        }
      };
      this.handled = this.handled.then(async () => void (await this.run(handle)));
    }
  }
}

const POOLED =
  "there is a pooler in transaction mode before the server, and a lock needs a session of its own; " +
  "connect to the server itself, or to a pooler in session mode";

const HELD = `
  SELECT pg_backend_pid() AS pid, EXISTS (
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted
      AND objsubid = 1 AND (classid::bigint << 32) | objid::bigint = $1::bigint
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  ) AS held`;

function lockOf(lock: unknown): string {
  const isNumber = typeof lock === "number" && Number.isSafeInteger(lock);
  const isText = typeof lock === "string" && /^-?\d+$/.test(lock);
  if (!isNumber && !isText && typeof lock !== "bigint") {
    throw new TypeError(`lock must be a safe integer, a bigint or a decimal string, not ${String(lock)}`);
  }
  const value = BigInt(lock as number | bigint | string);
  if (value !== BigInt.asIntN(64, value)) throw new RangeError(`lock has more than 64 bits: ${value}`);
  return String(value);
}

function checkChannels(channels: unknown): void {
  if (channels === undefined || channels === null) return;
  if (!Array.isArray(channels)) throw new Error("channels must be an array");
  for (const one of channels) {
    if (!one?.channel) throw new Error("channel is required for each notification channel");
    if (!one.onNotification) {
      throw new Error("onNotification is required for each notification channel");
    }
    checkChannel(one.channel);
  }
}

function checkChannel(name: unknown): void {
  if (typeof name !== "string" || name === "") throw new TypeError("a channel needs a name");
  const bytes = bytesOf(name);
  if (bytes > CHANNEL_MAX_BYTES) {
    throw new RangeError(`the channel ${name} has ${bytes} bytes; ${CHANNEL_MAX_BYTES} is the limit`);
  }
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}
