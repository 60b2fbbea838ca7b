/** The fence: a late write is refused where the data lives. None of this needs the native part. */
import { StaleTerm, TenureError } from "./errors.js";
import { shown, text, whole } from "./values.js";

export { StaleTerm } from "./errors.js";

const SQL = "SELECT tenure_fence($1::text, $2::bigint)";

type Query = (sql: string, values: unknown[]) => Promise<unknown>;

/** Lets the transaction of this connection go on only while the term leads. */
export async function check(transaction: unknown, election: string, term: number): Promise<void> {
  given(election, term);
  if (isSqlite(transaction)) return checkSync(transaction, election, term);
  const query = querier(transaction);
  try {
    await query(SQL, [election, term]);
  } catch (error) {
    throw refusal(error, election, term) ?? error;
  }
}

/** The same for `node:sqlite` and better-sqlite3. Begins a transaction if none is open. */
export function checkSync(database: unknown, election: string, term: number): void {
  given(election, term);
  if (!isSqlite(database)) throw unknown(database, "checkSync");
  // At once for writing: nobody can raise the mark between the check and the write.
  if (!(database.isTransaction ?? database.inTransaction ?? false)) begin(database);
  database.exec(SQLITE_TABLE);
  database.exec(SQLITE_TRIGGER);
  const found = database.prepare(SQLITE_MARK).get(election) as { term: number } | undefined;
  if (found && found.term > term) throw stale(election, term, found.term);
  if (!found || found.term < term) database.prepare(SQLITE_RAISE).run(election, term);
}

/** One term of one election, to put in front of writes to Redis. */
export class RedisFence {
  readonly #keys: string[];
  readonly #run: (keys: string[], values: string[]) => Promise<unknown>;

  constructor(
    client: unknown, private readonly election: string, private readonly term: number, options: { prefix?: string } = {},
  ) {
    given(election, term);
    const lease = `${text("prefix", options.prefix ?? "")}${election}`;
    const companion = /\{[^}]+\}/.test(lease) ? `${lease}:tenure:own` : `${options.prefix ?? ""}{${lease}}:tenure`;
    this.#keys = [lease, companion];
    this.#run = evaluator(client);
  }

  /** Runs a command if the term still leads, in one atomic step. */
  async run(command: readonly (string | number)[], options: { keys?: readonly string[] } = {}): Promise<unknown> {
    if (!Array.isArray(command) || command.length === 0) {
      throw new TenureError("config", 'the command is none; give its words, as in ["SET", "key", "value"]');
    }
    const touched = options.keys ?? command.slice(1, 2).map(String);
    try {
      return await this.#run([...this.#keys, ...touched], [String(this.term), ...command.map(String)]);
    } catch (error) {
      const said = /TENURESTALE (\d+)/.exec(error instanceof Error ? error.message : String(error));
      if (said) throw stale(this.election, this.term, Number(said[1]), error);
      throw error;
    }
  }
}

// Inside

/** The script of the Redis store: a test compares them. */
export const FENCE_LUA = `\
-- Runs one write if, and only if, the term still leads.
-- KEYS: lease, companion, then every key that the write touches. ARGV: term, then the write.
local holder = redis.call('GET', KEYS[1])
local noted = redis.call('HMGET', KEYS[2], 'holder', 'term', 'ends')
if not holder and noted[3] then
  -- A key that was deleted or evicted: the lease counts up to its noted end.
  local clock = redis.call('TIME')
  if clock[1] * 1000 + math.floor(clock[2] / 1000) <= tonumber(noted[3]) then
    holder = noted[1]
  end
end
if not holder or holder ~= noted[1] or noted[2] ~= ARGV[1] then
  return redis.error_reply('TENURESTALE ' .. (noted[2] or '0'))
end
return redis.call(unpack(ARGV, 2))
`;

// The table of marks of the SQLite store.
const SQLITE_TABLE = "CREATE TABLE IF NOT EXISTS tenure_fence (election TEXT PRIMARY KEY, term INTEGER NOT NULL)";
const SQLITE_TRIGGER = `
CREATE TRIGGER IF NOT EXISTS tenure_fence_stale BEFORE UPDATE ON tenure_fence
WHEN new.term < old.term
BEGIN
    SELECT RAISE(ABORT, 'tenure: stale term');
END`;
const SQLITE_MARK = "SELECT term FROM tenure_fence WHERE election = ?";
const SQLITE_RAISE =
  "INSERT INTO tenure_fence (election, term) VALUES (?, ?) ON CONFLICT (election) DO UPDATE SET term = excluded.term";

interface Sqlite {
  exec(sql: string): unknown;
  prepare(sql: string): { get(...values: unknown[]): unknown; run(...values: unknown[]): unknown };
  isTransaction?: boolean;
  inTransaction?: boolean;
}

type Shape = Record<string | symbol, any>;

function given(election: unknown, term: unknown): void {
  text("the election", election);
  whole("the term", term, Number.MAX_SAFE_INTEGER);
}

function isSqlite(value: unknown): value is Sqlite {
  const shape = value as Shape | null;
  return typeof shape?.["exec"] === "function" && typeof shape["prepare"] === "function";
}

function begin(database: Sqlite): void {
  try {
    database.exec("BEGIN IMMEDIATE");
  } catch (error) {
    // Node 22 does not tell whether one is open.
    if (!(error instanceof Error && /within a transaction/.test(error.message))) throw error;
  }
}

/** How to ask over this transaction, or a refusal if it is none. */
function querier(value: unknown): Query {
  const shape = (value ?? {}) as Shape;
  const maker = (shape["constructor"] ?? {}) as Shape;
  const kind = String(maker[Symbol.for("drizzle:entityKind")] ?? "");
  if (kind) {
    // A nested one is a savepoint, and rolling back to it would undo the fence.
    if (!kind.endsWith("Transaction") || shape["nestedIndex"] > 0) throw autocommit();
    // What its dialect asks of a statement, so that drizzle itself need not be imported.
    const statement = (sql: string, params: unknown[]) => ({ getSQL: () => ({ toQuery: () => ({ sql, params }) }) });
    return (sql, values) => shape["execute"](statement(sql, values));
  }
  if (typeof shape["executeQuery"] === "function" && "isTransaction" in shape) {
    if (!shape["isTransaction"]) throw autocommit();
    // A compiled query, as kysely makes it; importing it would fail in CommonJS before Node 22.
    const query = (sql: string) => ({ kind: "RawNode", sqlFragments: [sql], parameters: [] });
    const queryId = { queryId: `tenure-fence-${Math.random()}` };
    return (sql, parameters) => shape["executeQuery"]({ sql, parameters, query: query(sql), queryId });
  }
  if (typeof value === "function" && typeof shape["unsafe"] === "function") {
    // The package `postgres`: only what `begin` hands out has savepoints.
    if (typeof shape["savepoint"] !== "function") throw autocommit();
    return (sql, values) => shape["unsafe"](sql, values);
  }
  if (typeof shape["query"] === "function") {
    // A pool hands out another connection for each query.
    if (typeof shape["totalCount"] === "number" || shape["getTransactionStatus"]?.() === "I") throw autocommit();
    return (sql, values) => shape["query"](sql, values);
  }
  throw unknown(value, "check");
}

function evaluator(client: unknown): (keys: string[], values: string[]) => Promise<unknown> {
  const shape = (client ?? {}) as Shape;
  if (typeof shape["eval"] !== "function") throw unknown(client, "RedisFence");
  // node-redis has `sendCommand` for lists of words; ioredis takes an object of its own there, and has `defineCommand`.
  if (typeof shape["defineCommand"] === "function") {
    return (keys, values) => shape["eval"](FENCE_LUA, keys.length, ...keys, ...values);
  }
  return (keys, values) => shape["eval"](FENCE_LUA, { keys, arguments: values });
}

function refusal(error: unknown, election: string, term: number): StaleTerm | undefined {
  for (let inner = error as Shape | undefined; inner; inner = inner["cause"] as Shape | undefined) {
    if (inner["code"] === "TN001") return stale(election, term, undefined, error);
  }
  return undefined;
}

function stale(election: string, term: number, latest?: number, cause?: unknown): StaleTerm {
  const why = latest !== undefined && latest > term ? `${latest} leads; roll back and stop` : "roll back and stop";
  return new StaleTerm(`term ${term} of ${JSON.stringify(election)} is stale: ${why}`, cause);
}

function autocommit(): TenureError {
  return new TenureError(
    "config",
    "no transaction is open at the top level here, and without one a fence protects nothing; begin one first",
  );
}

function unknown(value: unknown, name: string): TenureError {
  return new TenureError("config", `${name} does not know ${shown(value)}; docs/node.md has what it takes`);
}
