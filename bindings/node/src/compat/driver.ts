/**
 * Carries out what an engine says. A renewal needs the event loop to turn, so a program whose loop
 * is blocked does not renew: its lease runs out, and `isLeader` turns false by itself before that.
 *
 * Imports nothing: it runs wherever timers and promises are.
 */
import { Engine, type Act, type Event, type Options, type Reason, type Timing } from "./engine.js";

/** An answer of the store. One that throws is neither a yes nor a no (I7). */
export type Answer =
  | { granted: true; term: number }
  | { granted: false; remaining?: number | null };

/** How an engine's requests reach a store. */
export interface Transport {
  acquire(seq: number, above: number, signal: AbortSignal): Promise<Answer>;
  renew(term: number, signal: AbortSignal): Promise<Answer>;
  release(term: number, seq: number, signal: AbortSignal): Promise<Answer>;
}

export interface Hooks {
  onBecome?: (() => unknown) | undefined;
  onLose?: ((reason: Reason) => unknown) | undefined;
  /** A request whose outcome is unknown. */
  onUnknown?: (verb: string, error: unknown) => void;
  /** An answer of any kind. */
  onAnswer?: (verb: string, answer: Answer) => void;
  /** A callback threw, or has not ended when it should have. */
  onTrouble?: (what: string, error?: unknown) => void;
  /** Timers do not keep the process alive. */
  unref?: boolean;
}

type Timer = ReturnType<typeof setTimeout>;

function after(ms: number, unref: boolean | undefined, run: () => void): Timer {
  // Longer ones overflow in every runtime; it looks again then.
  const timer = setTimeout(run, Math.min(Math.max(ms, 0), 2_000_000_000));
  if (unref) (timer as { unref?: () => void }).unref?.();
  return timer;
}

/**
 * Milliseconds that never go back, and run as fast as the fastest clock that it asks: a clock that
 * stood still or was set back can't lengthen a lease.
 */
export function makeClock(): () => number {
  let now = 0;
  let last = [performance.now(), Date.now()] as const;
  return () => {
    const read = [performance.now(), Date.now()] as const;
    now += Math.max(read[0] - last[0], read[1] - last[1], 0);
    last = read;
    return now;
  };
}

/** One incarnation, from a start to a stop. */
export class Driver {
  readonly over: Promise<void>;
  private readonly engine: Engine;
  private readonly clock = makeClock();
  /** Whether the return of the loss callback means that the work is done. */
  private readonly countsLose: boolean;
  private timer: Timer | undefined;
  private end!: () => void;
  private isEnded = false;
  private firstAnswer!: () => void;
  private readonly answered: Promise<void>;
  private become: Promise<void> | undefined;
  private stopping: Promise<void> | undefined;

  constructor(
    private readonly transport: Transport,
    private readonly timing: Timing,
    private readonly hooks: Hooks,
    options: Options = {},
  ) {
    this.countsLose = hooks.onLose !== undefined && options.hasLose !== false;
    this.engine = new Engine(timing, {
      ...options,
      hasBecome: hooks.onBecome !== undefined,
      hasLose: this.countsLose,
    });
    this.over = new Promise((resolve) => {
      this.end = () => {
        this.isEnded = true;
        resolve();
      };
    });
    this.answered = new Promise((resolve) => (this.firstAnswer = resolve));
  }

  /** May something be started? No I/O. After a loss, the drain is kept for work that got a true. */
  isLeader(): boolean {
    return this.engine.handle(this.clock(), ["ask"])[0]![1] as boolean;
  }

  /** The term that is led, or null. */
  term(): number | null {
    return this.engine.isLeader(this.clock()) ? this.engine.term : null;
  }

  /** Runs `work` if this leads, else null. A hand-over waits for it, at most for the drain. */
  async runIfLeader<T>(work: () => T | Promise<T>): Promise<T | null> {
    if (!this.engine.handle(this.clock(), ["begin"])[0]![1]) return null;
    try {
      return await work();
    } finally {
      this.give(["end"]);
    }
  }

  /** Resolves after the first answer, and after the become callback if that was a yes. */
  async start(): Promise<void> {
    this.give(["start"]);
    await Promise.race([this.answered, this.over]);
    if (this.become) await Promise.race([this.become, this.over]);
  }

  /** Takes no longer than min(ttl/6, 5 s), and never rejects. */
  stop(): Promise<void> {
    this.stopping ??= new Promise((resolve) => {
      const done = () => {
        clearTimeout(limit);
        this.end();
        clearTimeout(this.timer);
        resolve();
      };
      const limit = after((this.timing.drain * 5) / 4, false, done);
      void this.over.then(done);
      this.give(["stop"]);
    });
    return this.stopping;
  }

  private give(event: Event): void {
    for (const act of this.engine.handle(this.clock(), event)) this.carryOut(act);
    if (this.engine.isOver) this.end();
  }

  private carryOut(act: Act): void {
    switch (act[0]) {
      case "acquire":
        return this.send("acquire", (signal) => this.transport.acquire(act[1], act[2], signal));
      case "renew":
        return this.send("renew", (signal) => this.transport.renew(act[1], signal));
      case "release":
        return this.send("release", (signal) => this.transport.release(act[1], act[2], signal));
      case "lead":
        this.become = this.call("becoming leader", this.hooks.onBecome, true);
        return;
      case "step_down": {
        const { onLose } = this.hooks;
        void this.call("losing leadership", onLose && (() => onLose(act[2])), this.countsLose);
        return;
      }
      case "overdue":
        if (this.engine.busy > 0) this.hooks.onTrouble?.("work of a reign that is over still runs");
        return;
      case "wake":
      case "sleep":
        clearTimeout(this.timer);
        if (act[0] === "wake" && !(this.isEnded && this.stopping)) {
          const instant = act[1] + Math.random() * (act[2] - act[1]);
          this.timer = after(instant - this.clock(), this.hooks.unref, () => this.give(["tick"]));
        }
    }
  }

  private send(verb: string, ask: (signal: AbortSignal) => Promise<Answer>): void {
    // Stamped before anything is sent: a lease counts from here (I3).
    const sentAt = this.clock();
    const abort = new AbortController();
    let isOpen = true;
    const settle = (event: Event, tell: () => void) => {
      if (!isOpen) return;
      isOpen = false;
      clearTimeout(limit);
      quietly(tell);
      this.give(event);
      this.firstAnswer();
    };
    const unknown = (error: unknown) => {
      settle(["unknown", sentAt], () => this.hooks.onUnknown?.(verb, error));
      abort.abort();
    };
    // A renewal that is lost is tried again before the step-down.
    const longest = this.timing.ttl / 6;
    const limit = after(longest, this.hooks.unref, () => {
      unknown(new Error(`no answer to ${verb} within ${Math.round(longest)} ms`));
    });
    Promise.resolve()
      .then(() => ask(abort.signal))
      .then((answer) => {
        const tell = () => this.hooks.onAnswer?.(verb, answer);
        if (answer.granted) settle(["granted", sentAt, answer.term], tell);
        else settle(["refused", sentAt, answer.remaining ?? null], tell);
      })
      .catch(unknown);
  }

  /** A callback of the program's own. What it throws is told, and harms nobody. */
  private async call(
    what: string,
    callback: (() => unknown) | undefined,
    counts: boolean,
  ): Promise<void> {
    if (!callback) return;
    // Not inside of the engine's own turn: a callback may call `stop`.
    await undefined;
    try {
      await callback();
    } catch (error) {
      quietly(() => this.hooks.onTrouble?.(`a callback failed on ${what}`, error));
    }
    if (counts) this.give(["end"]);
  }
}

/** Runs what belongs to the program, such as its log: it must not stop the engine. */
export function quietly(run: () => void): void {
  try {
    run();
  } catch {
    // A listener that fails has a problem of its own.
  }
}

/** 32 hexadecimal digits that tell incarnations apart. */
export function incarnation(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
