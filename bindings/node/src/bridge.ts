/**
 * Between the event loop of this thread and what goes on in native code.
 *
 * An operation is polled on the loop's own thread. What wakes it calls one weak thread-safe function.
 * So a loop that is blocked polls nothing, and answers no bell: no lease is kept for it.
 */
import { translated } from "./errors.js";
import { already, load, type Op, type Port, type Value } from "./native.js";

type Ended = (value: Value | undefined, error: unknown) => void;

let port: Port | undefined;
let tokens = 0;
const waiting = new Map<number, { op: Op; ended: Ended }>();

/** Polls an operation from now on. `ended` may be called before this returns. Gives it up if called. */
export function watch(op: Op, ended: Ended): () => void {
  port ??= connected();
  do tokens = (tokens + 1) >>> 0;
  while (waiting.has(tokens));
  const token = tokens;
  waiting.set(token, { op, ended });
  poll(token);
  return () => {
    if (waiting.delete(token)) op.close();
  };
}

/** Waits for an operation. It keeps the loop alive meanwhile, unless that may take forever. */
export function wait(op: Op, keepsAlive = true): Promise<Value> {
  const release = keepsAlive ? hold() : () => {};
  return new Promise((resolve, reject) => {
    watch(op, (value, error) => {
      release();
      if (value === undefined) reject(error);
      else resolve(value);
    });
  });
}

let holds = 0;
let timer: NodeJS.Timeout | undefined;

/** Keeps the loop alive until what it returns is called. */
export function hold(): () => void {
  if (holds++ === 0) timer = setInterval(() => {}, 2 ** 31 - 1);
  let isHeld = true;
  return () => {
    if (!isHeld) return;
    isHeld = false;
    if (--holds === 0) clearInterval(timer);
  };
}

function connected(): Port {
  // What is still open when no JavaScript will run any more is given back, in bounded time.
  process.on("exit", () => already()?.closeEnvironment());
  return new (load().Port)(ready);
}

function ready(): void {
  for (const token of port?.woken() ?? []) poll(token);
}

function poll(token: number): void {
  const entry = waiting.get(token);
  if (entry === undefined || port === undefined) return;
  let value: Value | null;
  try {
    value = entry.op.poll(port, token);
  } catch (error) {
    waiting.delete(token);
    tell(entry.ended, undefined, translated(error));
    return;
  }
  if (value === null) return;
  waiting.delete(token);
  tell(entry.ended, value, undefined);
}

/** One that fails must not keep the others from being told. */
function tell(ended: Ended, value: Value | undefined, error: unknown): void {
  try {
    ended(value, error);
  } catch (failed) {
    process.nextTick(() => {
      throw failed;
    });
  }
}
