/**
 * One candidate in one election: every decision about leading, and no means of acting.
 *
 * No clock, no I/O, no timers: it takes events and instants, and returns what is to be done. Its
 * rules are those of tenure's own machine, and the vectors of tenure's simulator hold it to them.
 * The drop-in in Python has the same engine.
 *
 * All times are milliseconds on one local axis. With `s`, the instant at which the last granted
 * request was *sent*:
 *
 *     s          s + renewEvery         step down          trust ends         s + ttl
 *     |----------------|------------------|------------------|------------------|
 *                                         |<---- drain ----->|<---- margin ---->|
 */

/** The durations of a lease, in milliseconds. */
export interface Timing {
  ttl: number;
  renewEvery: number;
  margin: number;
  drain: number;
  poll: number;
}

/** The timing of a drop-in: a stop takes min(ttl/6, 5 s), and a fifth of that is for the release. */
export function timingOf(ttl: number, renewEvery: number): Timing {
  const renew = Math.min(renewEvery, ttl / 3);
  return {
    ttl,
    renewEvery: renew,
    margin: Math.max(Math.min(Math.max(ttl / 20, 5), 2_000), ttl / 100),
    drain: (Math.min(ttl / 6, 5_000) * 4) / 5,
    poll: renew,
  };
}

export interface Options {
  /** Step down at the first renewal of unknown outcome. */
  failClosed?: boolean;
  /** Each lead calls somebody, whose end is told by `end`. */
  hasBecome?: boolean;
  /** Each step-down calls somebody, whose end is told by `end` and means "done". */
  hasLose?: boolean;
}

/** What happens to an engine. `refused` has how long the other lease lasts, or null. */
export type Event =
  | ["start"] | ["stop"] | ["tick"] | ["ask"] | ["begin"] | ["end"]
  | ["granted", sentAt: number, term: number]
  | ["refused", sentAt: number, remaining: number | null]
  | ["unknown", sentAt: number];

/** What it does. A term of 0 is none. */
export type Act =
  | ["acquire", seq: number, above: number]
  | ["renew", term: number]
  | ["release", term: number, seq: number]
  | ["lead" | "extend", term: number, stepDownAt: number, until: number]
  | ["step_down", term: number, reason: Reason, until: number]
  | ["overdue", term: number]
  | ["vacated", term: number, released: boolean]
  | ["answer", yes: boolean]
  | ["wake", from: number, to: number]
  | ["sleep"];

export type Reason = "resigned" | "not_renewed" | "renewal_failed" | "deposed";

type Window = [from: number, to: number];
type State = "out" | "waiting" | "leading" | "draining" | "ending" | "releasing";

/**
 * After so many unknown outcomes in a row it takes back what it may hold, instead of asking for
 * more: one whose answers come too late would else keep everybody from leading.
 */
const PROBE_AFTER = 2;

/** Give it events with `handle`, carry out the actions in order. */
export class Engine {
  busy = 0;
  term = 0;
  protected state: State = "out";
  protected want = false;
  protected flight: "acquire" | "renew" | "release" | "probe" | null = null;
  protected seq = 0;
  protected led = 0;
  protected failures = 0;
  protected doubt = false;
  protected runsOutAt = 0;
  protected relied = false;
  protected stopBy: number | null = null;
  protected sentAt = 0;
  protected next: Window = [0, 0];
  protected drainUntil = 0;
  protected until = 0;
  protected aborted = false;
  protected ours = true;
  protected giveUpAt = 0;
  /** A reign was stepped down from, and its lease neither given back nor left to run out. */
  protected unsettled = false;
  protected orderly = false;
  protected overdue = false;
  protected acts: Act[] = [];

  constructor(protected readonly timing: Timing, protected options: Options = {}) {}

  /** May something be started? False by itself when the time has come, whatever hangs. */
  isLeader(now: number): boolean {
    return this.state === "leading" && now < this.stepDownAt(this.sentAt);
  }

  /** It was stopped, holds nothing and waits for nothing. */
  get isOver(): boolean {
    return this.stopBy !== null && this.state === "out" && this.flight === null;
  }

  /** Takes one event. Deadlines that have passed come first: no late answer revives a reign. */
  handle(now: number, event: Event): Act[] {
    if (event[0] === "ask" || event[0] === "begin") {
      const leads = this.isLeader(now);
      if (event[0] === "begin") this.busy += leads ? 1 : 0;
      else this.relied ||= leads;
      return [["answer", leads]];
    }
    this.acts = [];
    this.passDeadlines(now);
    switch (event[0]) {
      case "granted":
      case "refused":
      case "unknown":
        this.reply(now, event[0], event[1], event[2] ?? null);
        break;
      case "start":
        this.want = true;
        if (this.state === "out" || this.state === "waiting") this.wait([now, now]);
        break;
      case "stop":
        this.stopBy ??= now + this.timing.drain;
        this.leave(now);
        break;
      case "end":
        this.busy = Math.max(this.busy - 1, 0);
    }
    this.advance(now);
    this.settle(now);
    const wake = this.wake();
    this.acts.push(wake ? ["wake", ...wake] : ["sleep"]);
    return this.acts;
  }

  private stepDownAt(sentAt: number): number {
    return sentAt + this.timing.ttl - this.timing.margin - this.timing.drain;
  }

  private trustEndsAt(sentAt: number): number {
    return sentAt + this.timing.ttl - this.timing.margin;
  }

  private advance(now: number): void {
    this.passDeadlines(now);
    this.sendWhatIsDue(now);
  }

  /** What becomes of a reign that was stepped down from, as soon as that is clear (I8). */
  protected settle(now: number): void {
    if (!this.unsettled) return;
    const relied = this.relied && !this.options.hasLose;
    let runsOut = false;
    if (this.busy > 0) {
      if (this.stopBy === null || now < this.stopBy) return;
      runsOut = true;
    } else if (relied && this.orderly) {
      if (!this.overdue) return;
    } else {
      runsOut = relied;
    }
    this.unsettled = false;
    this.passDeadlines(now);
    if (runsOut) this.runOut(now);
    else this.drained(now);
    this.advance(now);
  }

  protected passDeadlines(now: number): void {
    if (this.state === "leading" && now >= this.stepDownAt(this.sentAt)) {
      this.stepDown(now, "not_renewed", this.trustEndsAt(this.sentAt));
    } else if (this.state === "draining") {
      if (now >= Math.min(this.drainUntil, this.trustEndsAt(this.sentAt))) this.end(now, true);
    }
    if (this.state === "ending" && !this.aborted && now >= this.until) {
      this.aborted = true;
      if (this.unsettled) {
        this.overdue = true;
        this.acts.push(["overdue", this.term]);
      }
    }
  }

  private end(until: number, ours: boolean): void {
    this.state = "ending";
    this.until = until;
    this.aborted = false;
    this.ours = ours;
  }

  private toldToStop(now: number, reason: Reason, until: number): void {
    this.acts.push(["step_down", this.term, reason, Math.max(until, now)]);
    this.unsettled = true;
    this.overdue = false;
    this.orderly = reason === "resigned";
    if (this.options.hasLose) this.busy += 1;
  }

  /** A forced end. Work may wind up until then; nothing revives it (I3). */
  private stepDown(now: number, reason: Reason, until: number): void {
    this.toldToStop(now, reason, until);
    this.end(until, reason !== "deposed");
  }

  private leave(now: number): void {
    this.want = false;
    if (this.state === "leading") {
      this.toldToStop(now, "resigned", this.trustEndsAt(this.sentAt));
      this.state = "draining";
      this.drainUntil = now + this.timing.drain;
    } else if (this.state === "waiting" || this.state === "out") {
      // The answer to an acquire that is under way decides what is left to give back.
      if (this.state === "waiting" && this.flight === "acquire") return;
      this.takeBack(now);
    }
  }

  /** Takes back an acquire that may have been granted (C2); not a lease that is to run out. */
  private takeBack(now: number): void {
    if (this.doubt && now >= this.runsOutAt) this.release(now, 0);
    else this.vacated(now, 0, true);
  }

  protected drained(now: number): void {
    const lapsed = now >= this.sentAt + this.timing.ttl && this.flight !== "renew";
    if (this.state === "draining" || (this.state === "ending" && this.ours && !lapsed)) {
      this.release(now, this.term);
    } else if (this.state === "ending") {
      this.vacated(now, this.term, !this.ours);
    }
  }

  /** Somebody has not said that they are done: the lease is not given back (I8). */
  protected runOut(now: number): void {
    if (this.state !== "draining" && this.state !== "ending") return;
    const ours = this.state === "draining" || this.ours;
    if (ours) this.runsOutAt = this.sentAt + this.timing.ttl;
    this.vacated(now, this.term, !ours);
    if (this.want && ours) this.next = this.spread(this.runsOutAt);
  }

  private release(now: number, term: number): void {
    this.failures = 0;
    this.led = Math.max(this.led, term);
    this.state = "releasing";
    this.term = term;
    this.next = [now, now];
    this.giveUpAt = now + this.timing.renewEvery;
  }

  private vacated(now: number, term: number, released: boolean): void {
    this.acts.push(["vacated", term, released]);
    this.failures = 0;
    if (this.want) this.wait([now, now]);
    else this.state = "out";
  }

  private wait(next: Window): void {
    this.state = "waiting";
    this.next = next;
  }

  protected waitAfterFailure(now: number): void {
    this.failures += 1;
    this.wait(this.backoff(now, this.timing.renewEvery));
  }

  protected sendWhatIsDue(now: number): void {
    if (this.flight || this.state === "out" || this.state === "ending") return;
    if (now < this.next[0]) return;
    if (this.state === "waiting") {
      if (!this.want) return;
      if (this.failures >= PROBE_AFTER) {
        this.flight = "probe";
        this.acts.push(["release", 0, this.seq]);
      } else {
        this.flight = "acquire";
        this.seq += 1;
        this.acts.push(["acquire", this.seq, this.led]);
      }
    } else if (this.state === "releasing") {
      this.flight = "release";
      this.acts.push(["release", this.term, this.seq]);
    } else {
      this.flight = "renew";
      this.acts.push(["renew", this.term]);
    }
  }

  protected reply(now: number, outcome: string, sentAt: number, value: number | null): void {
    const flight = this.flight;
    this.flight = null;
    if (flight === "acquire") this.acquireReply(now, outcome, sentAt, value);
    else if (flight === "renew") this.renewReply(now, outcome, sentAt, value);
    else if (flight === "release" && this.state === "releasing") this.releaseReply(now, outcome);
    else if (flight === "probe") {
      if (outcome !== "unknown") this.failures = 0;
      else if (this.state === "waiting") this.waitAfterFailure(now);
    }
  }

  private acquireReply(now: number, outcome: string, sentAt: number, value: number | null): void {
    if (outcome === "granted" && value !== null && value > this.led) {
      this.failures = 0;
      if (!this.want) {
        this.release(now, value);
      } else if (now >= this.stepDownAt(sentAt)) {
        // Too old to be of use. Never led, so asking again heals it.
        this.doubt = true;
        this.waitAfterFailure(now);
      } else {
        this.lead(value, sentAt);
      }
    } else if (outcome === "refused") {
      this.failures = 0;
      const { poll, ttl } = this.timing;
      const wait = value === null ? poll : Math.min(Math.max(value, ttl / 100), poll);
      if (this.want) this.wait(this.spread(now + wait));
      else this.takeBack(now);
    } else {
      // Unknown, or a term that was led before (C1).
      this.doubt = true;
      if (this.want) this.waitAfterFailure(now);
      else this.takeBack(now);
    }
  }

  private lead(term: number, sentAt: number): void {
    this.state = "leading";
    this.term = term;
    this.led = term;
    this.relied = false;
    if (this.options.hasBecome) this.busy += 1;
    this.trusted("lead", sentAt);
  }

  private trusted(word: "lead" | "extend", sentAt: number): void {
    const { renewEvery } = this.timing;
    this.sentAt = sentAt;
    const due = sentAt + renewEvery;
    this.next = [due - renewEvery / 5, due];
    this.acts.push([word, this.term, this.stepDownAt(sentAt), this.trustEndsAt(sentAt)]);
  }

  protected renewReply(now: number, outcome: string, sentAt: number, value: number | null): void {
    const holds = this.state !== "out" && this.state !== "waiting";
    if (outcome === "granted" && holds && value === this.term) {
      this.failures = 0;
      if (this.state === "leading" || this.state === "draining") this.trusted("extend", sentAt);
      // The step-down was final: there is only something to release.
      else if (this.state === "ending") this.sentAt = sentAt;
    } else if (outcome === "refused") {
      if (this.state === "leading") this.stepDown(now, "deposed", now);
      else if (this.state === "draining") this.end(now, false);
      else if (this.state === "ending") {
        this.ours = false;
        this.until = Math.min(this.until, now);
      }
    } else {
      this.failures += 1;
      if (this.state === "leading" || this.state === "draining") {
        this.next = this.backoff(now, this.timing.renewEvery / 4);
      }
      if (this.state === "leading" && this.options.failClosed) {
        this.stepDown(now, "renewal_failed", this.trustEndsAt(this.sentAt));
      }
    }
  }

  private releaseReply(now: number, outcome: string): void {
    if (outcome !== "unknown") {
      this.doubt = false;
      this.vacated(now, this.term, true);
      return;
    }
    this.failures += 1;
    const again = this.backoff(now, this.timing.renewEvery / 4);
    // Where no grant is known of, one try is enough; a lease that nobody renews ends.
    if (!this.term || again[1] >= this.giveUpAt) this.vacated(now, this.term, false);
    else this.next = again;
  }

  private backoff(now: number, longest: number): Window {
    const span = (longest / 8) * 2 ** Math.min(Math.max(this.failures - 1, 0), 3);
    return [now + span / 2, now + span];
  }

  private spread(instant: number): Window {
    return [instant, instant + Math.min(this.timing.ttl / 20, 50)];
  }

  private wake(): Window | null {
    const wake = this.stateWake();
    const by = this.stopBy;
    if (by === null || !this.unsettled) return wake;
    return wake && wake[0] <= by ? [wake[0], Math.min(wake[1], by)] : [by, by];
  }

  private stateWake(): Window | null {
    switch (this.state) {
      case "out":
        return null;
      case "waiting":
      case "releasing":
        return this.flight ? null : this.next;
      case "ending":
        return this.aborted ? null : [this.until, this.until];
    }
    const deadline = this.state === "draining"
      ? Math.min(this.trustEndsAt(this.sentAt), this.drainUntil)
      : this.stepDownAt(this.sentAt);
    if (this.flight || this.next[0] >= deadline) return [deadline, deadline];
    return [this.next[0], Math.min(this.next[1], deadline)];
  }
}
