// The public types of the package `tenure`, by hand: a change here is a change of the API.
// `npm run build` checks that the code has these types.

/** Milliseconds, or a text like "500ms", "30s", "1m30s". */
export type Duration = number | string;

/** A log as pino's: an object first, then the message. Methods that are missing are not called. */
export interface Log {
  level?: string;
  debug?(fields: object, message: string): void;
  info?(fields: object, message: string): void;
  warn?(fields: object, message: string): void;
  error?(fields: object, message: string): void;
}

/** Why leadership ended. */
export type Reason = "resigned" | "asked" | "not_renewed" | "renewal_failed" | "deposed" | (string & {});

export interface ElectionOptions {
  /** Who this is, for people; `host:pid` unless given. */
  label?: string;
  /** Named timings: `fast` 15 s, `normal` 30 s, `unreliable-network` 90 s. */
  profile?: "fast" | "normal" | "unreliable-network";
  /** How long a lease lasts that is not renewed. Default: 30 s. */
  ttl?: Duration;
  /** How often it is renewed. Default and maximum: ttl/3. */
  renewEvery?: Duration;
  /** How long before its end a lease is trusted no more. Default: ttl/20. */
  margin?: Duration;
  /** How long work has to wind up. Default: ttl/6. */
  drain?: Duration;
  /** What the leader publishes about itself. */
  metadata?: object;
  /** The first term is above this one: for a move from another store. */
  termFloor?: number;
  /** Step down at the first failed renewal. */
  failClosed?: boolean;
  /** What was started on `isLeader()` ends at once: do not wait for `done` or the drain. */
  atOnce?: boolean;
  /** How often a post is delivered before it is a dead letter. */
  postTries?: number;
  /** How long the handler of a post may take. */
  postTimeout?: Duration;
  /** `false`: take no part before `start()`, `lead`, `reigns`, `once` or a cron. */
  start?: boolean;
  log?: Log;
}

export interface Timing {
  ttlMs: number;
  renewEveryMs: number;
  marginMs: number;
  drainMs: number;
}

/** Who leads, as the store told it at one instant. */
export interface Leader {
  id: string;
  label: string;
  /** `null` for a holder that knows no terms. */
  term: number | null;
  remainingMs: number;
  sinceUnixMs: number | null;
  metadata: unknown;
}

/** A message, as a handler gets it. `term` is the fencing token for whatever it writes. */
export interface Message {
  channel: string;
  payload: unknown;
  term: number;
  attempt: number;
  /** The store's number of a post; `null` for a notice. */
  id: number | null;
  /** The sender's key of a post; `null` for a notice. */
  key: string | null;
  /** Aborted when leadership ends. */
  signal: AbortSignal;
  /** May I still finish what I started? */
  isCurrent(): boolean;
}

/** One run of the work for a key. */
export interface OnceRun {
  key: string;
  attempt: number;
  term: number;
  signal: AbortSignal;
  isCurrent(): boolean;
}

/** `ran` here, `already` done by somebody, or somebody `elsewhere` leads and was not waited for. */
export type OnceResult<T> = { outcome: "ran"; value: T } | { outcome: "already" | "elsewhere"; value: undefined };

export interface ElectionEvents {
  /** This instance leads. */
  elected: [term: number];
  /** It leads no more, and its work has to stop. */
  lost: [term: number, reason: Reason];
  /** The term when it begins to lead, `null` when it leads no more. */
  change: [term: number | null];
  /** A call to the store failed, or a handler did. It is tried again; nothing is thrown if nobody listens. */
  error: [error: unknown];
}

/** One process incarnation on one store: one connection for all elections that share it. */
export class Candidate {
  private constructor();
  static open(store?: string, options?: { label?: string }): Promise<Candidate>;
  /** Where the store is, without secrets. */
  readonly address: string;
}

/** The right to do the work, under one term, until it is lost. */
export class Reign {
  private constructor();
  /** The fencing token that goes with every write. */
  readonly term: number;
  /** Aborted when the work has to stop. Its reason is a `LeadershipLost`. */
  readonly signal: AbortSignal;
  /** May I still finish what I started? True until trust ends. No I/O. */
  isCurrent(): boolean;
  /** May I start something? False from the step-down on. No I/O. */
  isLeader(): boolean;
  /** How long trust lasts if nothing is renewed, in milliseconds. */
  remaining(): number;
  /** Says that the work has ended, and waits until the lease is given back. */
  resign(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** One candidate's part in one election. */
export class Election {
  private constructor();
  /**
   * Opens the store. Without one it is `$TENURE_STORE`, else the SQLite file of this user. The election takes part
   * from the next turn of the event loop on, unless `lead`, `reigns`, `once` or a cron is called before, which take
   * part for as long as they run.
   */
  static open(name: string, store?: string | Candidate, options?: ElectionOptions): Promise<Election>;
  readonly name: string;
  /** Who this is, once it took part. */
  readonly id: string | null;
  readonly timing: Timing;

  /** May I start something? Asks the native part each time; false by itself when trust ends. Relied upon. */
  isLeader(): boolean;
  /** The term led now, or `null`. Relied upon, as `isLeader()`. */
  readonly term: number | null;
  /** The same for showing it: nobody is taken to rely on it. */
  peekTerm(): number | null;

  on<E extends keyof ElectionEvents>(event: E, listener: (...told: ElectionEvents[E]) => unknown): this;
  off<E extends keyof ElectionEvents>(event: E, listener: (...told: ElectionEvents[E]) => unknown): this;

  /** Takes part from now on. Resolves after the first attempt: a lone instance leads then. */
  start(): Promise<void>;
  /** Takes no further part: tells the work to stop, waits for it, gives the lease back. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
  /** Gives up the present reign, steps back for one `renewEvery`, and campaigns again. */
  resign(): Promise<void>;
  /** All work of this term has ended that `isLeader()`, `term` or an event let in. */
  done(term: number): void;
  /** Stops at these signals, then lets them end the process. Returns how to undo it. */
  stopOnSignals(signals?: ("SIGTERM" | "SIGINT" | "SIGHUP" | "SIGQUIT" | "SIGBREAK" | "SIGUSR1" | "SIGUSR2")[]): () => void;
  /** Keeps the event loop alive until `unref()`. Nothing else here does, save a call that is under way. */
  ref(): this;
  /** Lets the event loop end, also while `lead`, `reigns`, `once` or a cron waits to lead. */
  unref(): this;

  /**
   * Runs the work when this instance leads, for work that ends, and resolves with what it returned. Work that ends
   * because it was told to begins again in the next reign, unless it returned a value in time. `undefined` once the
   * election is stopped. If the work throws, leadership is given up, the election is stopped, and this rejects.
   */
  lead<T>(work: (reign: Reign) => T | Promise<T>, options?: { signal?: AbortSignal }): Promise<T | undefined>;
  /** Each time this instance leads, until the election is stopped. */
  reigns(options?: { signal?: AbortSignal }): AsyncIterableIterator<Reign>;
  /** Runs the work if this instance leads. `undefined` if not, or if trust ended before the work did. */
  runIfLeader<T>(work: (run: { term: number; signal: AbortSignal }) => T | Promise<T>): Promise<T | undefined>;
  /** Has the work done once for a key, by whichever instance, until a success is recorded. */
  once<T>(key: string, work: (run: OnceRun) => T | Promise<T>, options?: { tries?: number; wait?: Duration }): Promise<OnceResult<T>>;

  /** Asks the store who leads: one read. */
  currentLeader(): Promise<Leader | null>;
  /** Sends JSON to the leader: at most once, and lost if nobody leads. */
  notify(channel: string, payload: unknown): Promise<void>;
  /** Keeps JSON until a leader has handled it. A known key adds nothing. */
  post(channel: string, payload: unknown, options: { key: string }): Promise<{ id: number; isNew: boolean }>;
  /** Handles the messages of a channel while this instance leads. To be given before it takes part. */
  onMessage(channel: string, handler: (payload: any, message: Message) => unknown, options?: { kind?: "notices" | "posts" }): this;
}

/** One run of a job, for one tick. */
export interface Run {
  job: string;
  scheduledAt: Date;
  attempt: number;
  manual: boolean;
  term: number;
  signal: AbortSignal;
  isCurrent(): boolean;
}

export interface JobOptions {
  /** The time zone. Default: UTC. */
  tz?: string;
  /** What to do with ticks missed while nobody led: `skip`, `run-once` or `run-all`. */
  missed?: string;
  delivery?: "at-most-once" | "at-least-once" | "transactional";
  overlap?: "skip" | "queue" | "allow";
  timeout?: Duration;
  jitter?: Duration;
  grace?: Duration;
  keep?: number;
}

export interface TickRecord {
  job: string;
  scheduledAt: Date;
  attempt: number;
  term: number | null;
  state: string;
}

/** Jobs that fire on the leader of an election, each tick once. */
export class Cron {
  constructor(election: Election);
  job(name: string, schedule: string, work: (run: Run) => unknown, options?: JobOptions): this;
  /** Fires the jobs each time this instance leads, until the election is stopped. */
  run(): Promise<void>;
  /** Asks the leader to run a job now. Resolves with the instant that it counts as scheduled for. */
  trigger(job: string): Promise<Date>;
  history(job?: string, options?: { limit?: number }): Promise<TickRecord[]>;
}

/** When a schedule fires next. */
export function nextTicks(schedule: string, options?: { tz?: string; count?: number; after?: Date }): Date[];

/** What is counted in this process, in the text of Prometheus. */
export function metrics(): string;

export type ErrorKind =
  | "config" | "unavailable" | "denied" | "unsupported" | "corrupt" | "stopped" | "crashed" | "forked"
  | "lost" | "stale_term" | "once_failed";

/** What went wrong, in a sentence that says what to do about it. */
export class TenureError extends Error {
  constructor(kind: ErrorKind, message: string, details?: { retryable?: boolean; store?: string | null; cause?: unknown });
  readonly kind: ErrorKind;
  /** `TENURE_` and the kind in capitals. */
  readonly code: string;
  /** The same call may succeed later without anybody changing anything. */
  readonly retryable: boolean;
  /** The kind of store that it came from, if any. */
  readonly store: string | null;
}

/** Why the signal of a reign was aborted. */
export class LeadershipLost extends TenureError {
  constructor(reason: Reason);
  readonly reason: Reason;
}

/** The term is not the current one: a write under it was refused. */
export class StaleTerm extends TenureError {
  constructor(message: string, cause?: unknown);
}

/** All tries of the work for a key are used up without success. */
export class OnceFailed extends TenureError {
  constructor(message: string, attempts: number);
  readonly attempts: number;
}
