-- Whose clock the times in this file are on. One row. After a reboot every lease is over (S1), but
-- only two ids that are the kernel's own tell of one: a container may have made its id up (S2).
CREATE TABLE host (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot_id TEXT NOT NULL,
    boot_is_kernels INTEGER NOT NULL,
    time_ns INTEGER NOT NULL
) STRICT;

-- One row for each election that somebody ever led. A row keeps the term, so none is
-- deleted but those of a drill, whose names are used once.
-- `holder` is NULL once the lease is released, `seq` the highest acquire that was granted this
-- term. Times are nanoseconds of CLOCK_BOOTTIME, under the boot whose hash is `boot`; that is odd
-- if the id is the kernel's own.
-- The columns that a renewal changes come first; `metadata`, the only long one, comes last.
CREATE TABLE lease (
    election TEXT PRIMARY KEY,
    term INTEGER NOT NULL CHECK (term BETWEEN 1 AND 9007199254740991),
    holder TEXT,
    expires_ns INTEGER NOT NULL,
    ttl_ns INTEGER NOT NULL,
    boot INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    asked INTEGER NOT NULL DEFAULT 0,
    witness INTEGER,
    since_unix_ms INTEGER,
    metadata TEXT
) STRICT, WITHOUT ROWID;

-- Which acquires a release has overtaken (C2). Kept for RELEASE_MEMORY.
CREATE TABLE released (
    election TEXT NOT NULL,
    candidate TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    PRIMARY KEY (election, candidate)
) STRICT, WITHOUT ROWID;
CREATE INDEX released_at ON released (at_ns);

-- Who must be proven dead before a lease that has not run out may be taken (S1, D1). One row for
-- each handle that holds leases; `pid` is NULL where no death is proof, or none can be proven.
CREATE TABLE witness (
    id INTEGER PRIMARY KEY,
    pid_ns INTEGER NOT NULL,
    pid INTEGER,
    pid_start INTEGER
) STRICT;
