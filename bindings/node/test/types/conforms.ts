// The code has the types that the package declares, and the types say what people may write.
import * as made from "../../src/index.js";
import { Cron, Election, LeadershipLost, TenureError } from "../../types/index.js";
import type * as Public from "../../types/index.js";
import * as fence from "../../src/fence.js";
import type * as PublicFence from "../../types/fence.js";

export const fences: Omit<typeof PublicFence, "RedisFence"> = fence;
export const redis: (typeof PublicFence)["RedisFence"]["prototype"] = fence.RedisFence.prototype;


type Instance<T extends { prototype: unknown }> = T["prototype"];
type Same<Name extends "Election" | "Reign" | "Candidate"> = Instance<(typeof made)[Name]> extends Instance<(typeof Public)[Name]> ? true : never;
export const same: [Same<"Election">, Same<"Reign">, Same<"Candidate">] = [true, true, true];
export const rest: Omit<typeof Public, "Election" | "Reign" | "Candidate" | "Cron"> = made;
export const open: typeof Public.Election.open extends (...given: infer G) => unknown
  ? (...given: G) => Promise<unknown> : never = made.Election.open as never;

export async function usage(): Promise<void> {
  const election = await Election.open("invoices", "postgres://db/shop", { ttl: "30s", metadata: { url: "http://a" } });
  election.on("elected", (term) => term.toFixed()).on("lost", (term, reason) => `${term + 1} ${reason}`);
  // @ts-expect-error there is no such event
  election.on("won", () => {});
  const answer: number | undefined = await election.lead(async (reign) => {
    await fetch("http://a", { signal: reign.signal });
    return reign.term;
  });
  for await (const reign of election.reigns()) {
    await using held = reign;
    held.signal.throwIfAborted();
  }
  const { outcome, value } = await election.once("key", ({ attempt }) => attempt, { wait: "5s" });
  if (outcome === "ran") value.toFixed();
  new Cron(election).job("nightly", "0 3 * * *", async (run) => run.scheduledAt.getTime(), { tz: "Europe/Berlin" });
  const kind: string = new TenureError("config", `${answer}`).kind + new LeadershipLost("deposed").reason;
  // @ts-expect-error the key is needed
  await election.post("orders", kind);
}
