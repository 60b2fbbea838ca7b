/** Signals that end a process: leases are given back before it goes. */
import type { Logger } from "./log.js";

/** Stops at the first of these signals, then lets it do what it would have done. */
export function onSignals(signals: NodeJS.Signals[], stop: () => Promise<void>, log: Logger): () => void {
  let isStopping = false;
  const undo = () => {
    for (const signal of signals) process.removeListener(signal, told);
  };
  const told = (signal: NodeJS.Signals) => {
    // A second one does not wait.
    if (isStopping) return end(signal);
    isStopping = true;
    stop()
      .catch((error: unknown) => log.warn({ err: error }, "stopping the election"))
      .finally(() => end(signal));
  };
  const end = (signal: NodeJS.Signals) => {
    undo();
    // Another listener, if there is one, decides how the process ends.
    if (process.listenerCount(signal) === 0) process.kill(process.pid, signal);
  };
  for (const signal of signals) process.on(signal, told);
  return undo;
}
