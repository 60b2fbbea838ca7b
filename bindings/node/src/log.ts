/** What tenure logs, as the log of the program has it: an object first, then the message. */
import { wait } from "./bridge.js";
import { load } from "./native.js";

type Method = (fields: object, message: string) => void;

/** A log as pino's. Methods that are missing are not called. */
export interface LogLike {
  level?: string;
  debug?: Method;
  info?: Method;
  warn?: Method;
  error?: Method;
}

export interface Logger {
  debug: Method;
  info: Method;
  warn: Method;
  error: Method;
}

interface Line {
  level: number;
  message: string;
  fields: Record<string, unknown>;
}

const NAMES = { 50: "error", 40: "warn", 30: "info", 20: "debug", 10: "debug" } as const;
const listeners = new Map<LogLike, string>();
let lowest = Infinity;

/** Writes to a log, whatever methods it has, and whatever they throw. */
export function logger(log: LogLike | undefined, election: string): Logger {
  const method = (name: keyof Logger): Method => (fields, message) => {
    try {
      log?.[name]?.({ election, ...fields }, message);
    } catch {
      // A log that fails must not end a reign.
    }
  };
  return { debug: method("debug"), info: method("info"), warn: method("warn"), error: method("error") };
}

/** The lines of an election go to this log from now on, until what it returns is called. */
export function listen(log: LogLike, election: string): () => void {
  listeners.set(log, election);
  const level = log.level === "trace" || log.level === "debug" ? 20 : 30;
  if (level < lowest) {
    lowest = level;
    void read(level);
  }
  return () => void listeners.delete(log);
}

async function read(level: number): Promise<void> {
  const source = new (load().Log)(level);
  while (lowest === level) {
    const lines = JSON.parse((await wait(source.next(), false)) as string) as Line[];
    for (const line of lines) {
      for (const [log, election] of listeners) {
        const of = line.fields["election"];
        if (of !== undefined && of !== election) continue;
        const name = NAMES[line.level as keyof typeof NAMES];
        try {
          log[name]?.(line.fields, line.message);
        } catch {
          // As above.
        }
      }
    }
  }
}
