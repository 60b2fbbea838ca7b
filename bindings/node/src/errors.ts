/** What can go wrong. Losing an election is none of it. */

export type ErrorKind =
  | "config" | "unavailable" | "denied" | "unsupported" | "corrupt" | "stopped" | "crashed" | "forked"
  | "lost" | "stale_term" | "once_failed";

export interface ErrorDetails {
  retryable?: boolean | undefined;
  store?: string | null | undefined;
  cause?: unknown;
}

export class TenureError extends Error {
  readonly kind: ErrorKind;
  readonly code: string;
  readonly retryable: boolean;
  readonly store: string | null;

  constructor(kind: ErrorKind, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.kind = kind;
    this.code = `TENURE_${kind.toUpperCase()}`;
    this.retryable = details.retryable ?? kind === "unavailable";
    this.store = details.store ?? null;
  }

  override get name(): string {
    return "TenureError";
  }
}

/** Why the signal of a reign was aborted: the work has to stop. */
export class LeadershipLost extends TenureError {
  readonly reason: string;

  constructor(reason: string) {
    super("lost", `leadership ended: ${reason}`);
    this.reason = reason;
  }

  override get name(): string {
    return "LeadershipLost";
  }
}

/** The term is not the current one: a write under it was refused. */
export class StaleTerm extends TenureError {
  constructor(message: string, cause?: unknown) {
    super("stale_term", message, { cause });
  }

  override get name(): string {
    return "StaleTerm";
  }
}

/** All tries of the work for a key are used up without success. */
export class OnceFailed extends TenureError {
  readonly attempts: number;

  constructor(message: string, attempts: number) {
    super("once_failed", message);
    this.attempts = attempts;
  }

  override get name(): string {
    return "OnceFailed";
  }
}

interface Described {
  kind: ErrorKind;
  message: string;
  retryable: boolean;
  store: string | null;
}

export function made({ kind, message, retryable, store }: Described): TenureError {
  return new TenureError(kind, message, { retryable, store });
}

/** The error that the native part meant: it has room for one string, which is JSON then. */
export function translated(error: unknown): unknown {
  const message = error instanceof Error ? error.message : "";
  if (!message.startsWith('{"tenure":')) return error;
  return made((JSON.parse(message) as { tenure: Described }).tenure);
}

/** Calls the native part. */
export function native<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw translated(error);
  }
}

/** Whether work ended because it was told to, by this signal. */
export function isAbort(error: unknown, signal: AbortSignal): boolean {
  if (!signal.aborted) return false;
  if (error === signal.reason) return true;
  const { name, cause } = (error ?? {}) as { name?: unknown; cause?: unknown };
  return name === "AbortError" || (cause !== undefined && cause === signal.reason);
}
