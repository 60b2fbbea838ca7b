/** The native part: what it offers, and where it is found. */
import { existsSync } from "node:fs";
import { join } from "node:path";

import { TenureError } from "./errors.js";

export interface Op {
  poll(port: Port, token: number): Value | null;
  close(): void;
}

export type Value = boolean | string | NativeReign | NativeCall;

export interface Port {
  woken(): number[];
}

export interface NativeReign {
  readonly term: number;
  isCurrent(): boolean;
  isLeader(): boolean;
  remainingMs(): number;
  lost(): Op;
  ended(): Op;
  resign(): Op;
  drop(): void;
}

export interface NativeCall {
  readonly kind: "notice" | "post" | "job" | "once";
  argument(): string | null;
  isCurrent(): boolean;
  toldToStop(): Op;
  end(failed: string | null, lost: boolean): void;
}

export interface NativeWork {
  readonly term: number;
  takeOp(): Op | null;
  end(): void;
}

export interface NativeOptions {
  profile?: string | undefined;
  ttl?: number | undefined;
  renewEvery?: number | undefined;
  margin?: number | undefined;
  drain?: number | undefined;
  metadata?: string | undefined;
  termFloor?: number | undefined;
  failClosed?: boolean | undefined;
  atOnce?: boolean | undefined;
  postTries?: number | undefined;
  postTimeout?: number | undefined;
}

export interface NativeCandidate {
  readonly address: string;
  open(): Op;
}

export interface NativeEvents {
  next(): Op;
}

export interface NativeElection {
  handle(channel: string, posts: boolean): void;
  isLeader(): boolean;
  nothing(): boolean;
  term(): number | null;
  peekTerm(): number | null;
  id(): string | null;
  timing(): string;
  build(): Op;
  start(): Op;
  stop(): Op;
  resign(): Op;
  done(term: number): void;
  vouch(): Op;
  campaign(): Op;
  enter(): NativeWork | null;
  currentLeader(): Op;
  events(vouches: boolean): NativeEvents;
  nextCall(): Op;
  once(key: string, tries: number, wait: number | undefined, ticket: number): Op;
  claimTick(job: string, scheduledUnixMs: number, term: number): Op;
  endTick(job: string, scheduledUnixMs: number, term: number, attempt: number): Op;
  notify(channel: string, json: string): Op;
  post(channel: string, json: string, key: string): Op;
}

export interface NativeJobOptions {
  zone: string;
  delivery?: string | undefined;
  missed?: string | undefined;
  overlap?: string | undefined;
  timeout?: number | undefined;
  jitter?: number | undefined;
  grace?: number | undefined;
  keep?: number | undefined;
}

export interface NativeCron {
  add(election: NativeElection, name: string, schedule: string, options: NativeJobOptions): void;
  run(election: NativeElection): Op;
  trigger(election: NativeElection, job: string): Op;
  history(election: NativeElection, job: string | undefined, limit: number): Op;
}

export interface NativeLog {
  next(): Op;
}

export interface Native {
  Port: new (wake: () => void) => Port;
  Candidate: new (url: string | undefined, label: string | undefined) => NativeCandidate;
  Election: new (name: string, candidate: NativeCandidate, options: NativeOptions) => NativeElection;
  Cron: new () => NativeCron;
  Log: new (level: number) => NativeLog;
  nextTicks(schedule: string, zone: string, afterUnixMs: number, count: number): number[];
  metricsText(): string;
  closeEnvironment(): number;
}

/** The names of this platform, as napi-rs has them. Which C library there is, trying shows. */
export function platforms(): [string, ...string[]] {
  const { platform, arch } = process;
  if (platform === "linux") return [`linux-${arch}-gnu`, `linux-${arch}-musl`];
  return [platform === "win32" ? `win32-${arch}-msvc` : `${platform}-${arch}`];
}

let loaded: Native | undefined;

/** The native part. It is loaded when it is first needed: importing the package never fails. */
export function load(): Native {
  return (loaded ??= find());
}

/** The native part if it was loaded. */
export const already = (): Native | undefined => loaded;

function find(): Native {
  const failures: unknown[] = [];
  for (const name of platforms()) {
    // Beside the package when it was built here, else in a package of its own.
    const beside = join(__dirname, "..", `tenure.${name}.node`);
    try {
      return require(existsSync(beside) ? beside : `tenure-${name}`) as Native;
    } catch (error) {
      failures.push(error);
    }
  }
  const [name] = platforms();
  const broken = failures.find((error) => (error as { code?: string }).code !== "MODULE_NOT_FOUND");
  const why = broken instanceof Error
    ? broken.message
    : `the package tenure-${name} is missing. npm leaves it out with --omit=optional; else this platform has none`;
  throw new TenureError("unsupported", `tenure has no native part for ${name} here: ${why}`, { cause: failures[0] });
}
