// The public types of `tenure/fence`, by hand.
import { TenureError } from "./index.js";

/** The term is not the current one: a write under it was refused. Roll back and stop. */
export class StaleTerm extends TenureError {
  constructor(message: string, cause?: unknown);
}

/**
 * Lets the transaction of this connection go on only while the term leads; else it rejects with `StaleTerm`. To be the
 * first statement of a transaction at the top level. Takes a client of `pg`, the `sql` that `begin` of `postgres` hands
 * out, transactions of kysely and drizzle on PostgreSQL, and databases of `node:sqlite` and better-sqlite3.
 */
export function check(transaction: unknown, election: string, term: number): Promise<void>;

/** The same for `node:sqlite` and better-sqlite3. Begins a transaction if none is open. */
export function checkSync(database: unknown, election: string, term: number): void;

/** One term of one election, to put in front of writes with ioredis or node-redis, on the server that elects. */
export class RedisFence {
  constructor(client: unknown, election: string, term: number, options?: { prefix?: string });
  /** Runs a command if the term still leads, in one atomic step. `keys` are all that it touches: its first word unless given. */
  run(command: readonly (string | number)[], options?: { keys?: readonly string[] }): Promise<unknown>;
}
