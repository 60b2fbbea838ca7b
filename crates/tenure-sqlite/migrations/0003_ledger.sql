-- The cron ledger: one row for each tick that somebody asked for, claimed or skipped (K1). Times
-- are milliseconds of Unix time, for people; whether a term holds is judged by the table `lease`.
-- A skipped row stands for `count` ticks, up to `through_ms`.
CREATE TABLE tick (
    election TEXT NOT NULL,
    job TEXT NOT NULL,
    scheduled_ms INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('requested', 'claimed', 'started', 'ok', 'failed',
        'timed_out', 'abandoned', 'skipped')),
    manual INTEGER NOT NULL DEFAULT 0,
    term INTEGER,
    attempt INTEGER NOT NULL DEFAULT 0,
    code INTEGER,
    through_ms INTEGER,
    count INTEGER,
    claimed_ms INTEGER,
    started_ms INTEGER,
    ended_ms INTEGER,
    PRIMARY KEY (election, job, scheduled_ms)
) STRICT, WITHOUT ROWID;
CREATE INDEX tick_time ON tick (election, scheduled_ms);
CREATE INDEX tick_open ON tick (election, scheduled_ms)
WHERE state IN ('requested', 'claimed', 'started');

-- How far each job has got. Trimming does not touch it.
CREATE TABLE tick_job (
    election TEXT NOT NULL,
    job TEXT NOT NULL,
    latest_ms INTEGER NOT NULL,
    PRIMARY KEY (election, job)
) STRICT, WITHOUT ROWID;
