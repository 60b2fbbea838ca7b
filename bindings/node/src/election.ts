/** One candidate's part in one election. */
import { EventEmitter } from "node:events";

import { hold, wait, watch } from "./bridge.js";
import { Server } from "./calls.js";
import { Candidate, nativeOf } from "./candidate.js";
import { LeadershipLost, OnceFailed, TenureError, isAbort, made, native } from "./errors.js";
import { listen, logger, type LogLike, type Logger } from "./log.js";
import { load, type NativeCall, type NativeElection, type NativeReign } from "./native.js";
import { onSignals } from "./signals.js";
import { Reign } from "./reign.js";
import { callable, json, known, millis, parsed, shown, text, whole, type Duration } from "./values.js";

export interface ElectionOptions {
  label?: string;
  profile?: "fast" | "normal" | "unreliable-network";
  ttl?: Duration;
  renewEvery?: Duration;
  margin?: Duration;
  drain?: Duration;
  metadata?: object;
  termFloor?: number;
  failClosed?: boolean;
  atOnce?: boolean;
  postTries?: number;
  postTimeout?: Duration;
  start?: boolean;
  log?: LogLike;
}

const OPTIONS = [
  "label", "profile", "ttl", "renewEvery", "margin", "drain", "metadata", "termFloor", "failClosed", "atOnce",
  "postTries", "postTimeout", "start", "log",
] as const;

export interface Timing {
  ttlMs: number;
  renewEveryMs: number;
  marginMs: number;
  drainMs: number;
}

export interface Leader {
  id: string;
  label: string;
  term: number | null;
  remainingMs: number;
  sinceUnixMs: number | null;
  metadata: unknown;
}

export interface Message {
  channel: string;
  payload: unknown;
  term: number;
  attempt: number;
  id: number | null;
  key: string | null;
  signal: AbortSignal;
  isCurrent(): boolean;
}

export interface OnceRun {
  key: string;
  attempt: number;
  term: number;
  signal: AbortSignal;
  isCurrent(): boolean;
}

export type OnceResult<T> = { outcome: "ran"; value: T } | { outcome: "already" | "elsewhere"; value: undefined };

type MessageHandler = (payload: any, message: Message) => unknown;
type Job = (argument: Record<string, unknown>, call: NativeCall, signal: AbortSignal) => unknown;

interface Told {
  name: string;
  details: { term?: number; reason?: string; error?: Parameters<typeof made>[0] };
}

/** What parts of this package in other files may do with an election. */
export interface Inside {
  native: NativeElection;
  jobs: Map<string, Job>;
  begin(): Promise<void>;
  takePart(): void;
  hold(): () => void;
}

const insides = new WeakMap<Election, Inside>();

export function insideOf(election: Election): Inside {
  const found = election instanceof Election ? insides.get(election) : undefined;
  if (!found) throw new TenureError("config", "the election is none; give one of `Election.open`");
  return found;
}

const KEY = Symbol("made by open");

const EVENTS = ["elected", "lost", "change", "error"] as const;
type EventName = (typeof EVENTS)[number];

export class Election {
  readonly name: string;
  readonly #emitter = new EventEmitter();
  readonly #native: NativeElection;
  readonly #options: ElectionOptions;
  readonly #log: Logger;
  readonly #handlers = new Map<string, MessageHandler>();
  readonly #jobs = new Map<string, Job>();
  readonly #onces = new Map<number, (run: Omit<OnceRun, "signal" | "isCurrent">, call: NativeCall, signal: AbortSignal) => unknown>();
  readonly #reigns = new Set<Reign>();
  readonly #leaving = new Set<() => void>();
  #ticket = 0;
  #stops = 0;
  #starting: Promise<void> | undefined;
  #immediate: NodeJS.Immediate | undefined;
  #beginning: Promise<void> | undefined;
  #server: Server | undefined;
  #unvouch: () => void = () => {};
  #unlisten: () => void = () => {};
  #feed: { vouches: boolean; close: () => void } | undefined;
  #led: number | undefined;
  #release: (() => void) | undefined;
  readonly #holds = new Set<() => void>();
  #isUnref = false;

  private constructor(key: symbol, name: string, inside: NativeElection, options: ElectionOptions) {
    if (key !== KEY) throw new TenureError("config", "elections are made by `await Election.open(...)`");
    this.name = name;
    this.#native = inside;
    this.#options = options;
    this.#log = logger(options.log, name);
    insides.set(this, {
      native: inside,
      jobs: this.#jobs,
      begin: () => this.#begin(),
      takePart: () => this.#takePart(),
      hold: () => this.#hold(),
    });
  }

  static async open(name: string, store?: string | Candidate, options: ElectionOptions = {}): Promise<Election> {
    text("the name of the election", name);
    known("the options of an election", options, OPTIONS);
    if (store instanceof Candidate && options.label !== undefined) {
      throw new TenureError("config", "label is given, and the candidate has one already");
    }
    if (options.metadata !== undefined && (typeof options.metadata !== "object" || options.metadata === null)) {
      throw new TenureError("config", "metadata is no object; give one");
    }
    const { profile, termFloor, failClosed, atOnce, postTries } = options;
    const read = (what: "ttl" | "renewEvery" | "margin" | "drain" | "postTimeout") => millis(what, options[what]);
    const given = {
      profile: profile === undefined ? undefined : text("profile", profile),
      ttl: read("ttl"),
      renewEvery: read("renewEvery"),
      margin: read("margin"),
      drain: read("drain"),
      metadata: options.metadata === undefined ? undefined : json("metadata", options.metadata),
      termFloor: termFloor === undefined ? undefined : whole("termFloor", termFloor, Number.MAX_SAFE_INTEGER),
      failClosed,
      atOnce,
      postTries: postTries === undefined ? undefined : whole("postTries", postTries),
      postTimeout: read("postTimeout"),
    };
    const labelled = options.label === undefined ? {} : { label: options.label };
    const candidate = store instanceof Candidate ? store : await Candidate.open(store, labelled);
    const inside = native(() => new (load().Election)(name, nativeOf(candidate), given));
    const election = new Election(KEY, name, inside, options);
    if (options.start !== false) election.#startSoon();
    return election;
  }

  get id(): string | null {
    return this.#native.id();
  }

  get timing(): Timing {
    return JSON.parse(this.#native.timing()) as Timing;
  }

  isLeader(): boolean {
    return this.#native.isLeader();
  }

  get term(): number | null {
    return this.#native.term();
  }

  peekTerm(): number | null {
    return this.#native.peekTerm();
  }

  // Events

  on(event: EventName, listener: (...told: any[]) => unknown): this {
    if (!EVENTS.includes(event)) {
      throw new TenureError("config", `there is no event ${shown(event)}; known are ${EVENTS.join(", ")}`);
    }
    this.#emitter.on(event, callable("the listener", listener) as (...told: unknown[]) => void);
    this.#wants(event);
    return this;
  }

  off(event: EventName, listener: (...told: any[]) => unknown): this {
    this.#emitter.off(event, listener as (...told: unknown[]) => void);
    return this;
  }

  // Taking part

  start(): Promise<void> {
    return this.#start(true);
  }

  async stop(): Promise<void> {
    clearImmediate(this.#immediate);
    this.#starting = undefined;
    this.#stops += 1;
    try {
      await wait(native(() => this.#native.stop()));
    } finally {
      for (const leave of [...this.#leaving]) leave();
      this.#end();
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async resign(): Promise<void> {
    await wait(native(() => this.#native.resign()));
  }

  done(term: number): void {
    native(() => this.#native.done(whole("term", term, Number.MAX_SAFE_INTEGER)));
  }

  stopOnSignals(signals: NodeJS.Signals[] = ["SIGTERM", "SIGINT"]): () => void {
    return onSignals(signals, () => this.stop(), this.#log);
  }

  ref(): this {
    this.#isUnref = false;
    this.#release ??= hold();
    return this;
  }

  unref(): this {
    this.#isUnref = true;
    this.#release?.();
    this.#release = undefined;
    for (const release of this.#holds) release();
    this.#holds.clear();
    return this;
  }

  // Leading

  async lead<T>(work: (reign: Reign) => T | Promise<T>, options: { signal?: AbortSignal } = {}): Promise<T | undefined> {
    callable("the work of lead", work);
    const { signal } = options;
    const reigns = this.reigns(options);
    for await (const reign of reigns) {
      let [value, error, isFailed]: [T | undefined, unknown, boolean] = [undefined, undefined, false];
      // The work is told first, and the lease given back when it has ended.
      const giveUp = () => void this.resign().catch(() => {});
      signal?.addEventListener("abort", giveUp, { once: true });
      try {
        value = await work(reign);
      } catch (failure) {
        [error, isFailed] = [failure, true];
      }
      signal?.removeEventListener("abort", giveUp);
      const wasTold = reign.signal.aborted;
      const isInTime = reign.isCurrent();
      const isAborted = isFailed && isAbort(error, reign.signal);
      await reign.resign();
      if (isFailed && !isAborted) {
        // An instance whose work is broken must not lead and do nothing.
        await this.stop().catch((trouble: unknown) => this.#log.warn({ err: trouble }, "stopping the election"));
        throw error;
      }
      if (!isFailed && (!wasTold || (isInTime && value !== undefined))) return value;
    }
    return undefined;
  }

  reigns(options: { signal?: AbortSignal } = {}): AsyncIterableIterator<Reign> {
    this.#takePart();
    const stops = this.#stops;
    const { signal } = options;
    let last: Reign | undefined;
    let withdraw = () => {};
    let isOver = false;
    let release: (() => void) | undefined;
    const leave = () => {
      isOver = true;
      withdraw();
    };
    const drop = () => {
      last?.drop();
      if (last) this.#reigns.delete(last);
      last = undefined;
    };
    const end = (): IteratorResult<Reign> => {
      drop();
      release?.();
      this.#leaving.delete(leave);
      signal?.removeEventListener("abort", leave);
      return { done: true, value: undefined };
    };
    this.#leaving.add(leave);
    signal?.addEventListener("abort", leave, { once: true });
    const next = async (): Promise<IteratorResult<Reign>> => {
      drop();
      if (signal?.aborted) {
        end();
        throw signal.reason;
      }
      if (isOver || this.#stops !== stops) return end();
      release ??= this.#hold();
      await this.#begin();
      const came = await new Promise<NativeReign | undefined>((resolve, reject) => {
        const unwatch = watch(native(() => this.#native.campaign()), (value, error) => {
          if (typeof value === "object") resolve(value as NativeReign);
          else if (error instanceof TenureError && error.kind === "stopped") resolve(undefined);
          else reject(error);
        });
        withdraw = () => {
          unwatch();
          resolve(undefined);
        };
        if (isOver) withdraw();
      });
      withdraw = () => {};
      if (came === undefined) {
        end();
        if (signal?.aborted) throw signal.reason;
        return { done: true, value: undefined };
      }
      last = new Reign(came, this.#log);
      this.#reigns.add(last);
      return { done: false, value: last };
    };
    return {
      next,
      return: async () => {
        leave();
        const given = last;
        const ended = end();
        await given?.resign();
        return ended;
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  }

  async runIfLeader<T>(work: (run: { term: number; signal: AbortSignal }) => T | Promise<T>): Promise<T | undefined> {
    callable("the work of runIfLeader", work);
    const entered = native(() => this.#native.enter());
    const op = entered?.takeOp();
    if (!entered || !op) return undefined;
    const controller = new AbortController();
    const isInTime = new Promise<boolean>((resolve) => {
      watch(op, (value) => {
        resolve(value === true);
        if (value !== true) controller.abort(new LeadershipLost("not_renewed"));
      });
    });
    const release = hold();
    try {
      let value: T;
      try {
        value = await work({ term: entered.term, signal: controller.signal });
      } catch (error) {
        if (isAbort(error, controller.signal)) return undefined;
        throw error;
      } finally {
        entered.end();
      }
      return (await isInTime) ? value : undefined;
    } finally {
      release();
    }
  }

  async once<T>(
    key: string, work: (run: OnceRun) => T | Promise<T>, options: { tries?: number; wait?: Duration } = {},
  ): Promise<OnceResult<T>> {
    callable("the work of once", work);
    known("the options of once", options, ["tries", "wait"]);
    const [tries, patience] = [whole("tries", options.tries ?? 3), millis("wait", options.wait)];
    if ((EVENTS as readonly string[]).includes(text("the key", key))) {
      throw new TenureError("config", `the key ${shown(key)} is the name of an event; use \`on\` to listen, or another key`);
    }
    this.#takePart();
    await this.#begin();
    const ticket = (this.#ticket = (this.#ticket + 1) >>> 0);
    const last: { value?: T; error?: unknown } = {};
    this.#onces.set(ticket, async (run, call, signal) => {
      delete last.error;
      try {
        last.value = await work({ ...run, signal, isCurrent: () => call.isCurrent() });
      } catch (error) {
        last.error = error;
        throw error;
      }
    });
    const release = this.#hold();
    try {
      const told = await wait(native(() => this.#native.once(key, tries, patience, ticket)), false);
      const [outcome, attempts, said] = JSON.parse(told as string) as [string, number, string | null];
      if (outcome === "failed") {
        if ("error" in last) throw last.error;
        throw new OnceFailed(`the work for ${JSON.stringify(key)} failed ${attempts} times: ${said}`, attempts);
      }
      return { outcome, value: outcome === "ran" ? last.value : undefined } as OnceResult<T>;
    } finally {
      release();
      this.#onces.delete(ticket);
    }
  }

  // Asking and telling

  async currentLeader(): Promise<Leader | null> {
    const told = await wait(native(() => this.#native.currentLeader()));
    const leader = JSON.parse(told as string) as (Leader & { metadata: string | null }) | null;
    return leader && { ...leader, metadata: leader.metadata === null ? null : parsed(leader.metadata) };
  }

  async notify(channel: string, payload: unknown): Promise<void> {
    await wait(native(() => this.#native.notify(text("the channel", channel), json("the payload", payload))));
  }

  async post(channel: string, payload: unknown, options: { key: string }): Promise<{ id: number; isNew: boolean }> {
    known("the options of post", options, ["key"]);
    const [name, key] = [text("the channel", channel), text("the key", options.key)];
    const told = await wait(native(() => this.#native.post(name, json("the payload", payload), key)));
    const [id, isNew] = JSON.parse(told as string) as [number, boolean];
    return { id, isNew };
  }

  onMessage(channel: string, handler: MessageHandler, options: { kind?: "notices" | "posts" } = {}): this {
    callable("the handler", handler);
    known("the options of onMessage", options, ["kind"]);
    for (const kind of ["notice", "post"] as const) {
      if (options.kind !== undefined && options.kind !== `${kind}s`) continue;
      native(() => this.#native.handle(text("the channel", channel), kind === "post"));
      this.#handlers.set(`${kind} ${channel}`, handler);
    }
    return this;
  }

  // Inside

  /** Keeps the loop alive while somebody waits to lead, unless `unref()` was said. */
  #hold(): () => void {
    if (this.#isUnref) return () => {};
    const release = hold();
    this.#holds.add(release);
    return () => {
      release();
      this.#holds.delete(release);
    };
  }

  /** Somebody takes part by waiting: there is nothing to be started for nobody. */
  #takePart(): void {
    clearImmediate(this.#immediate);
  }

  #startSoon(): void {
    // What is said right after `open`, handlers above all, is said before it takes part.
    this.#immediate = setImmediate(() => {
      this.#start(false).catch((error: unknown) => this.#failed(error));
    });
  }

  #start(keepsAlive: boolean): Promise<void> {
    clearImmediate(this.#immediate);
    return (this.#starting ??= this.#begin()
      .then(() => wait(native(() => this.#native.start()), keepsAlive))
      .then(() => {}, (error: unknown) => {
        this.#starting = undefined;
        this.#end();
        throw error;
      }));
  }

  /** Builds the election, vouches for this loop and serves calls from now on. */
  #begin(): Promise<void> {
    return (this.#beginning ??= wait(native(() => this.#native.build())).then(() => {
      // Before anybody can lead: a loop that is blocked at once is noticed.
      this.#unvouch = watch(native(() => this.#native.vouch()), () => {});
      this.#server = new Server(this.#native, (call, signal) => this.#find(call, signal), (kind, error) => {
        this.#log.error({ err: error }, `${kind} failed`);
        this.#failed(error);
      });
      if (this.#options.log) this.#unlisten = listen(this.#options.log, this.name);
      for (const event of EVENTS) if (this.#emitter.listenerCount(event)) this.#wants(event);
    }, (error: unknown) => {
      this.#beginning = undefined;
      throw error;
    }));
  }

  #end(): void {
    this.#unvouch();
    this.#server?.close();
    this.#feed?.close();
    this.#unlisten();
    this.#feed = this.#server = this.#beginning = undefined;
  }

  #find(call: NativeCall, signal: AbortSignal): (() => unknown) | undefined {
    const argument = JSON.parse(call.argument() ?? "{}") as Record<string, any>;
    const isCurrent = () => call.isCurrent();
    if (call.kind === "job") {
      const job = this.#jobs.get(argument["job"] as string);
      return job && (() => job(argument, call, signal));
    }
    if (call.kind === "once") {
      const { ticket, ...run } = argument;
      const work = this.#onces.get(ticket as number);
      return work && (() => work(run as OnceRun, call, signal));
    }
    const handler = this.#handlers.get(`${call.kind} ${argument["channel"]}`);
    const payload = parsed(argument["payload"] as string);
    return handler && (() => handler(payload, { ...argument, payload, signal, isCurrent } as Message));
  }

  /** Listens for events if somebody does. Who is told of a reign relies on it. */
  #wants(event: EventName): void {
    if (this.#server === undefined) return;
    const vouches = event !== "error";
    if (this.#feed && (this.#feed.vouches || !vouches)) return;
    this.#feed?.close();
    const events = native(() => this.#native.events(vouches));
    let unwatch = () => {};
    let isClosed = false;
    const next = () => {
      if (isClosed) return;
      unwatch = watch(native(() => events.next()), (told) => {
        if (typeof told !== "string") return;
        // The next one first: a listener that throws must not end the feed.
        setImmediate(next);
        this.#told(JSON.parse(told) as Told);
      });
    };
    this.#feed = {
      vouches,
      close: () => {
        isClosed = true;
        unwatch();
      },
    };
    next();
  }

  #told({ name, details }: Told): void {
    const { term, reason, error } = details;
    if (name === "elected" && term !== undefined) {
      this.#led = term;
      this.#emitter.emit("elected", term);
      this.#emitter.emit("change", term);
    } else if ((name === "draining" || name === "stepped_down") && this.#led === term) {
      this.#led = undefined;
      this.#emitter.emit("lost", term, reason);
      this.#emitter.emit("change", null);
    }
    if (error) this.#failed(made(error));
  }

  #failed(error: unknown): void {
    this.#log.warn({ err: error }, "something failed");
    if (this.#emitter.listenerCount("error") > 0) this.#emitter.emit("error", error);
  }
}
