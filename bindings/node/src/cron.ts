/** Jobs that fire on the leader of an election, each tick once. */
import { wait } from "./bridge.js";
import { type Election, insideOf } from "./election.js";
import { native } from "./errors.js";
import { load, type NativeCron } from "./native.js";
import { callable, known, millis, text, whole, type Duration } from "./values.js";

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
  tz?: string;
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

const OPTIONS = ["tz", "missed", "delivery", "overlap", "timeout", "jitter", "grace", "keep"] as const;

export class Cron {
  readonly #election: Election;
  readonly #native: NativeCron;

  constructor(election: Election) {
    insideOf(election);
    this.#election = election;
    this.#native = new (load().Cron)();
  }

  job(name: string, schedule: string, work: (run: Run) => unknown, options: JobOptions = {}): this {
    callable("the job", work);
    known("the options of a job", options, OPTIONS);
    const inside = insideOf(this.#election);
    const { tz = "UTC", missed, delivery, overlap, keep } = options;
    const read = (what: "timeout" | "jitter" | "grace") => millis(what, options[what]);
    const given = {
      zone: text("tz", tz), missed, delivery, overlap,
      timeout: read("timeout"), jitter: read("jitter"), grace: read("grace"),
      keep: keep === undefined ? undefined : whole("keep", keep),
    };
    native(() => this.#native.add(inside.native, text("the name of the job", name), text("the schedule", schedule), given));
    inside.jobs.set(name, ({ scheduledUnixMs, ...run }, call, signal) => {
      const scheduledAt = new Date(scheduledUnixMs as number);
      return work({ ...run, scheduledAt, signal, isCurrent: () => call.isCurrent() } as Run);
    });
    return this;
  }

  async run(): Promise<void> {
    const inside = insideOf(this.#election);
    inside.takePart();
    await inside.begin();
    const release = inside.hold();
    await wait(native(() => this.#native.run(inside.native)), false).finally(release);
  }

  async trigger(job: string): Promise<Date> {
    const inside = insideOf(this.#election);
    const told = await wait(native(() => this.#native.trigger(inside.native, text("the job", job))));
    return new Date(Number(told));
  }

  async history(job?: string, options: { limit?: number } = {}): Promise<TickRecord[]> {
    known("the options of history", options, ["limit"]);
    const inside = insideOf(this.#election);
    const limit = whole("limit", options.limit ?? 100);
    const name = job === undefined ? undefined : text("the job", job);
    const told = await wait(native(() => this.#native.history(inside.native, name, limit)));
    type Raw = Omit<TickRecord, "scheduledAt"> & { scheduledUnixMs: number };
    return (JSON.parse(told as string) as Raw[]).map(({ scheduledUnixMs, ...rest }) => ({
      ...rest, scheduledAt: new Date(scheduledUnixMs),
    }));
  }
}

/** When a schedule fires next. */
export function nextTicks(schedule: string, options: { tz?: string; count?: number; after?: Date } = {}): Date[] {
  known("the options of nextTicks", options, ["tz", "count", "after"]);
  const { tz = "UTC", count = 5, after = new Date() } = options;
  const ticks = native(() => load().nextTicks(text("the schedule", schedule), text("tz", tz), after.getTime(), whole("count", count)));
  return ticks.map((tick) => new Date(tick));
}
