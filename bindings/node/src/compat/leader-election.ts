/**
 * The `LeaderElection` class of the heartbeat table, with tenure's rules. Changing the import is
 * the whole change.
 *
 * What is different from the old class: trust ends by the local clock, whatever hangs; an error of
 * the database is neither a yes nor a no; the lease is given back after `onLoseLeadership` has
 * settled, never before; a slow `onBecomeLeader` delays no renewal, and one that throws ends nothing.
 */
import { Driver, incarnation, type Answer, type Transport } from "./driver.js";
import { timingOf } from "./engine.js";

export interface LeaderElectionConfig {
  serviceName: string;
  candidateId: string;
  /** 10,000 unless given. */
  heartbeatIntervalMs?: number;
  /** 30 unless given. */
  heartbeatTimeoutSeconds?: number;
  onBecomeLeader?: () => unknown;
  onLoseLeadership?: () => unknown;
}

/** A Supabase client, as far as it is used. */
export interface RpcClient {
  rpc(name: string, params: Record<string, unknown>): any;
}

/** A `pg.Pool`, as far as it is used. */
export interface QueryPool {
  query(sql: string, values: unknown[]): Promise<{ rows: any[] }>;
}

type Row = { granted?: unknown; term?: unknown; remaining_ms?: unknown };
/** Calls a function of the database: its parameters by name, in the order of its signature. */
type Call = (name: string, params: Record<string, unknown>, signal: AbortSignal) => Promise<unknown>;

const UPGRADE =
  "falling back to try_become_leader, leader_heartbeat and step_down, without a term;";
const MISSING =
  `this database has no tenure_try_lead: ${UPGRADE} ` +
  "run `tenure migrate --store URL` to upgrade the table in place";
const DENIED =
  `this role may not call tenure_try_lead: ${UPGRADE} ` +
  "grant it EXECUTE on tenure_try_lead, tenure_renew and tenure_release";

/** With "#" and the incarnation it fits into the table's 255. */
const LABEL_MAX_BYTES = 200;

/** One candidate. The client handed in is used itself; no connection is opened. */
export class LeaderElection {
  private readonly call: Call;
  private readonly config: Required<Pick<LeaderElectionConfig,
    "serviceName" | "candidateId" | "heartbeatIntervalMs" | "heartbeatTimeoutSeconds">> &
    LeaderElectionConfig;
  private driver: Driver | undefined;
  private table: Table | undefined;
  private readonly told = new Set<string>();

  constructor(client: RpcClient | QueryPool, config: LeaderElectionConfig) {
    this.config = { heartbeatIntervalMs: 10_000, heartbeatTimeoutSeconds: 30, ...config };
    this.call = caller(client);
    const { serviceName, candidateId, heartbeatIntervalMs, heartbeatTimeoutSeconds } = this.config;
    text("serviceName", serviceName);
    text("candidateId", candidateId);
    duration("heartbeatIntervalMs", heartbeatIntervalMs, 86_400_000);
    duration("heartbeatTimeoutSeconds", heartbeatTimeoutSeconds, 86_400);
    for (const name of ["onBecomeLeader", "onLoseLeadership"] as const) {
      const given: unknown = this.config[name];
      if (given != null && typeof given !== "function") {
        throw new TypeError(`${name} must be a function`);
      }
    }
  }

  /** May something be started now? No I/O; false by itself when trust ends. */
  isCurrentLeader(): boolean {
    return this.driver?.isLeader() ?? false;
  }

  /** The term that is led, for `tenure_fence`; null on a database without tenure's functions. */
  get term(): number | null {
    return this.table?.isOld ? null : (this.driver?.term() ?? null);
  }

  /** Resolves after the first answer, and after `onBecomeLeader` has settled if that was a yes. */
  async start(): Promise<void> {
    if (this.driver) return;
    const { serviceName, candidateId, heartbeatIntervalMs, heartbeatTimeoutSeconds } = this.config;
    const ttl = heartbeatTimeoutSeconds * 1000;
    if (heartbeatIntervalMs > ttl / 3) {
      this.warn(
        `heartbeatIntervalMs is ${heartbeatIntervalMs}, more than a third of ` +
          `heartbeatTimeoutSeconds (${heartbeatTimeoutSeconds}): beating every ${ttl / 3} ms`,
      );
    }
    const candidate = `${shortened(candidateId)}#${incarnation()}`;
    this.table = new Table(this.call, serviceName, candidate, ttl, (words) => this.warn(words));
    const say = (words: string, error?: unknown) =>
      console.error(`tenure: ${serviceName}: ${words}`, ...(error === undefined ? [] : [error]));
    const { onBecomeLeader, onLoseLeadership } = this.config;
    this.driver = new Driver(this.table, timingOf(ttl, heartbeatIntervalMs), {
      onBecome: onBecomeLeader && (() => onBecomeLeader()),
      onLose: onLoseLeadership && (() => onLoseLeadership()),
      onUnknown: (verb, error) => say(`the outcome of ${verb} is unknown:`, error),
      onTrouble: say,
    });
    await this.driver.start();
  }

  /**
   * Tells `onLoseLeadership`, waits for it, and gives the lease back. Takes at most
   * min(timeout / 6, 5 s); if the callback still runs then, the lease runs out.
   */
  async stop(): Promise<void> {
    const driver = this.driver;
    await driver?.stop();
    if (this.driver === driver) this.driver = undefined;
  }

  /** The result of `work`, or null if this instance does not lead. A hand-over waits for it. */
  async runIfLeader<T>(work: () => T | Promise<T>): Promise<T | null> {
    return this.driver ? this.driver.runIfLeader(work) : null;
  }

  private warn(words: string): void {
    if (this.told.has(words)) return;
    this.told.add(words);
    console.warn(`tenure: ${this.config.serviceName}: ${words}`);
  }
}

/** The result of `work`, or null if this instance does not lead. */
export async function runIfLeader<T>(
  election: LeaderElection,
  work: () => T | Promise<T>,
): Promise<T | null> {
  return election.runIfLeader(work);
}

/** One election in one database, for one incarnation of one candidate. */
class Table implements Transport {
  isOld = false;
  /** The old functions issue no terms; these are only told apart in this process. */
  private localTerm = 0;

  constructor(
    private readonly call: Call,
    private readonly service: string,
    private readonly candidate: string,
    private readonly ttl: number,
    private readonly warn: (words: string) => void,
  ) {}

  async acquire(seq: number, above: number, signal: AbortSignal): Promise<Answer> {
    if (!this.isOld) {
      const params = { ...this.who(), ttl_ms: Math.ceil(this.ttl), above, seq };
      let why = MISSING;
      try {
        const row = first(await this.call("tenure_try_lead", params, signal));
        // A stand-in that knows the old functions only answers with a bare yes or no.
        if (typeof row !== "boolean") return lease(row);
      } catch (error) {
        const code = codeOf(error);
        if (code !== "PGRST202" && code !== "42883" && code !== "42501") throw error;
        if (code === "42501") why = DENIED;
      }
      this.isOld = true;
      this.warn(why);
    }
    const timeout = Math.max(Math.ceil(this.ttl / 1000), 1);
    if (!(await this.old("try_become_leader", "p_candidate_id", signal, timeout))) {
      return { granted: false };
    }
    this.localTerm = Math.max(this.localTerm + 1, above + 1);
    return { granted: true, term: this.localTerm };
  }

  async renew(term: number, signal: AbortSignal): Promise<Answer> {
    if (this.isOld) {
      const beats = await this.old("leader_heartbeat", "p_leader_id", signal);
      return beats ? { granted: true, term } : { granted: false };
    }
    const params = { ...this.who(), term, ttl_ms: Math.ceil(this.ttl) };
    return lease(first(await this.call("tenure_renew", params, signal)));
  }

  async release(term: number, seq: number, signal: AbortSignal): Promise<Answer> {
    if (this.isOld) await this.old("step_down", "p_leader_id", signal);
    else await this.call("tenure_release", { ...this.who(), term: term || null, seq }, signal);
    // Given back, or not held: both are an answer.
    return { granted: false };
  }

  private who() {
    return { service: this.service, candidate: this.candidate };
  }

  private async old(
    name: string,
    id: string,
    signal: AbortSignal,
    timeout?: number,
  ): Promise<boolean> {
    const params: Record<string, unknown> = { p_service_name: this.service, [id]: this.candidate };
    if (timeout !== undefined) params.p_timeout_seconds = timeout;
    const yes = first(await this.call(name, params, signal));
    if (typeof yes !== "boolean") {
      throw new TypeError(`${name} must answer with a boolean, not ${JSON.stringify(yes)}`);
    }
    return yes;
  }
}

/** The one value or row of an answer. */
function first(data: unknown): unknown {
  return Array.isArray(data) ? data[0] : data;
}

function lease(row: unknown): Answer {
  const { granted, term, remaining_ms: left } = (row ?? {}) as Row;
  if (granted === true && Number.isSafeInteger(term)) return { granted, term: term as number };
  if (granted === false) return { granted, remaining: typeof left === "number" ? left : null };
  throw new TypeError(`not an answer of tenure's functions: ${JSON.stringify(row)}`);
}

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null)?.code;
}

function caller(client: any): Call {
  if (typeof client?.rpc === "function") {
    return async (name, params, signal) => {
      let request = client.rpc(name, params);
      if (typeof request?.abortSignal === "function") request = request.abortSignal(signal);
      const { data, error } = (await request) as { data: unknown; error: unknown };
      if (error) throw error;
      return data;
    };
  }
  if (typeof client?.query === "function") {
    return async (name, params) => {
      const values = Object.values(params);
      const marks = values.map((_, index) => `$${index + 1}`).join(", ");
      const { rows } = await client.query(`SELECT * FROM ${name}(${marks})`, values);
      const row = rows[0];
      // A function that returns one value has one column, of its own name.
      return row && name in row ? row[name] : row;
    };
  }
  throw new TypeError("the first argument must be a Supabase client or a pg.Pool");
}

function text(name: string, value: unknown): void {
  if (typeof value !== "string" || value === "") {
    throw new TypeError(`${name} must be a text that is not empty`);
  }
}

function duration(name: string, value: unknown, most: number): void {
  if (typeof value !== "number" || !(value > 0 && value <= most)) {
    throw new RangeError(`${name} must be a number above 0 and at most ${most}, not ${value}`);
  }
}

/** At most 200 bytes of it; the incarnation tells candidates apart. */
function shortened(label: string): string {
  let short = label;
  while (new TextEncoder().encode(short).length > LABEL_MAX_BYTES) short = short.slice(0, -1);
  return short;
}
