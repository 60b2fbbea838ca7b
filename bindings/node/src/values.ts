/** What comes in is checked here, and what does not fit is named. */
import { TenureError } from "./errors.js";

export type Duration = number | string;

const UNITS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** A duration in milliseconds, whichever way it was given. */
export function millis(what: string, value: unknown): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === "number") {
    if (Number.isFinite(value) && value >= 0) return value;
    throw new TenureError("config", `${what} is ${value}; give milliseconds from 0 to a day`);
  }
  if (typeof value === "string") {
    const parts = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h))+$/.test(value) ? value.match(/\d+(?:\.\d+)?(?:ms|s|m|h)/g) : null;
    if (parts) {
      return parts.reduce((sum, part) => {
        const unit = /[a-z]+$/.exec(part)?.[0] ?? "";
        return sum + parseFloat(part) * (UNITS[unit] ?? NaN);
      }, 0);
    }
  }
  throw new TenureError("config", `${what} is ${shown(value)}; give a duration like "30s" or "1m30s", or milliseconds`);
}

/** A string, or an error that names the argument. */
export function text(what: string, value: unknown): string {
  if (typeof value === "string") return value;
  throw new TenureError("config", `${what} is ${shown(value)}; give a string`);
}

/** A function, or an error that names the argument. */
export function callable<T>(what: string, value: T): T {
  if (typeof value === "function") return value;
  throw new TenureError("config", `${what} is ${shown(value)}; give a function`);
}

/** A whole number, or an error that names the argument. */
export function whole(what: string, value: unknown, most = 2 ** 32 - 1): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= most) return value;
  throw new TenureError("config", `${what} is ${shown(value)}; give a whole number from 1 to ${most}`);
}

/** JSON text of a value, or an error that names the argument. */
export function json(what: string, value: unknown): string {
  let written: string | undefined;
  try {
    written = JSON.stringify(value);
  } catch (error) {
    throw new TenureError("config", `${what} is no JSON: ${(error as Error).message}`, { cause: error });
  }
  if (written === undefined) throw new TenureError("config", `${what} is ${shown(value)}, which is no JSON`);
  return written;
}

/** What was sent as JSON. A program without tenure may have sent anything. */
export function parsed(written: string): unknown {
  try {
    return JSON.parse(written);
  } catch {
    return written;
  }
}

/** Names what is not known among options, so that a misspelt one is no silent default. */
export function known(what: string, options: object, names: readonly string[]): void {
  if (typeof options !== "object" || options === null) {
    throw new TenureError("config", `${what} are ${shown(options)}; give an object`);
  }
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) {
      throw new TenureError("config", `there is no option ${shown(name)}; known are ${names.join(", ")}`);
    }
  }
}

export function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "function") return `the function ${value.name || "without a name"}`;
  if (typeof value === "object" && value !== null) return `an object (${value.constructor?.name ?? "without a class"})`;
  return String(value);
}
