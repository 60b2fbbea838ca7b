import { wait } from "./bridge.js";
import { native } from "./errors.js";
import { load, type NativeCandidate } from "./native.js";
import { known, text } from "./values.js";

export interface CandidateOptions {
  label?: string;
}

const inside = new WeakMap<Candidate, NativeCandidate>();

/** The native part of a candidate. */
export const nativeOf = (candidate: Candidate): NativeCandidate => {
  const found = inside.get(candidate);
  if (!found) throw new TypeError("this is no candidate of tenure");
  return found;
};

/** One process incarnation on one store. It has one connection for all its elections. */
export class Candidate {
  private constructor(made: NativeCandidate) {
    inside.set(this, made);
  }

  static async open(store?: string, options: CandidateOptions = {}): Promise<Candidate> {
    known("the options of a candidate", options, ["label"]);
    // An address that is not given is that of the environment, else the file of this user.
    const url = store === undefined ? process.env["TENURE_STORE"] || undefined : text("the store", store);
    const label = options.label === undefined ? undefined : text("label", options.label);
    const made = native(() => new (load().Candidate)(url, label));
    await wait(native(() => made.open()));
    return new Candidate(made);
  }

  /** Where the store is, without secrets. */
  get address(): string {
    return nativeOf(this).address;
  }
}
