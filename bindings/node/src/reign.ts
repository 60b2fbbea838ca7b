import { wait, watch } from "./bridge.js";
import { LeadershipLost, TenureError, native } from "./errors.js";
import type { Logger } from "./log.js";
import type { NativeReign } from "./native.js";

/** The right to do the work, under one term, until it is lost. */
export class Reign {
  readonly term: number;
  readonly signal: AbortSignal;
  readonly #native: NativeReign;
  readonly #controller = new AbortController();
  readonly #log: Logger;
  #unwatch: () => void = () => {};
  #isClosed = false;

  constructor(made: NativeReign, log: Logger) {
    this.#native = made;
    this.#log = log;
    this.term = made.term;
    this.signal = this.#controller.signal;
    // Before any code of the user's is called: work that blocks at once is noticed.
    this.#unwatch = watch(made.lost(), (reason) => this.#told(typeof reason === "string" ? reason : "not_renewed"));
  }

  isCurrent(): boolean {
    return this.#native.isCurrent();
  }

  isLeader(): boolean {
    return this.#native.isLeader();
  }

  remaining(): number {
    return this.#native.remainingMs();
  }

  /** Says that the work has ended, and waits until the lease is given back. */
  async resign(): Promise<void> {
    if (this.#isClosed) return;
    this.#close();
    try {
      await wait(native(() => this.#native.resign()));
    } catch (error) {
      if (!(error instanceof TenureError)) throw error;
      this.#log.warn({ term: this.term, err: error }, "the lease was not given back; it runs out");
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.resign();
  }

  /** Says that the work has ended, and waits for nothing. */
  drop(): void {
    if (this.#isClosed) return;
    this.#close();
    this.#native.drop();
  }

  #told(reason: string): void {
    if (this.#isClosed) return;
    this.#unwatch = watch(native(() => this.#native.ended()), () => {
      if (this.#isClosed) return;
      this.#log.error({ term: this.term }, "the work has not ended in time; its lease runs out");
    });
    this.#controller.abort(new LeadershipLost(reason));
  }

  #close(): void {
    this.#isClosed = true;
    this.#unwatch();
    if (!this.signal.aborted) this.#controller.abort(new LeadershipLost("resigned"));
  }
}
