/** Calls from tenure to JavaScript: handlers of messages, jobs, the work of `once`. */
import { watch } from "./bridge.js";
import { LeadershipLost, isAbort } from "./errors.js";
import type { NativeCall, NativeElection } from "./native.js";

/** What to do for a call; nothing if nobody serves it. */
export type Find = (call: NativeCall, signal: AbortSignal) => (() => unknown) | undefined;

/** Serves the calls of one election. */
export class Server {
  #unwatch: () => void = () => {};
  #isClosed = false;

  constructor(
    private readonly election: NativeElection,
    private readonly find: Find,
    private readonly failed: (kind: string, error: unknown) => void,
  ) {
    this.#next();
  }

  close(): void {
    this.#isClosed = true;
    this.#unwatch();
  }

  #next(): void {
    this.#unwatch = watch(this.election.nextCall(), (call) => {
      if (typeof call !== "object" || this.#isClosed) return;
      void this.#serve(call as NativeCall);
      setImmediate(() => this.#isClosed || this.#next());
    });
  }

  async #serve(call: NativeCall): Promise<void> {
    const controller = new AbortController();
    const { signal } = controller;
    const work = this.find(call, signal);
    if (work === undefined) return call.end(`nobody serves ${call.kind}`, false);
    const unwatch = watch(call.toldToStop(), (reason) => {
      controller.abort(new LeadershipLost(typeof reason === "string" ? reason : "given_up"));
    });
    try {
      await work();
      call.end(null, false);
    } catch (error) {
      if (isAbort(error, signal)) return call.end(null, true);
      this.failed(call.kind, error);
      call.end(error instanceof Error ? `${error.name}: ${error.message}` : String(error), false);
    } finally {
      unwatch();
    }
  }
}
