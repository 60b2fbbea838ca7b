-- The cron ledger: one row for each tick that somebody asked for, claimed or skipped (K1). Times
-- are milliseconds of Unix time, for people; whether a term holds is judged by the table `lease`.
-- A skipped row stands for `count` ticks, up to `through_ms`.
CREATE TABLE tick (
    election TEXT NOT NULL,
    job TEXT NOT NULL,
    scheduled_ms INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('requested', 'claimed', 'started', 'retrying', 'ok',
        'failed', 'timed_out', 'abandoned', 'skipped')),
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
WHERE state IN ('requested', 'claimed', 'started', 'retrying');

-- How far each job has got, the schedule that it is due by, since when it is paused, and from when
-- on somebody had it count anew. Trimming does not touch it.
CREATE TABLE tick_job (
    election TEXT NOT NULL,
    job TEXT NOT NULL,
    latest_ms INTEGER NOT NULL,
    schedule TEXT,
    paused_ms INTEGER,
    anew_ms INTEGER,
    PRIMARY KEY (election, job)
) STRICT, WITHOUT ROWID;

-- Work that is done once for a key. One row for each, for ever: a success must stay known. `run`
-- is a number that was drawn for one run, so that a claim whose answer was lost is known again.
CREATE TABLE once (
    election TEXT NOT NULL,
    key TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'ok', 'failed', 'lost')),
    code INTEGER,
    term INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    run INTEGER NOT NULL,
    claimed_ms INTEGER,
    ended_ms INTEGER,
    PRIMARY KEY (election, key)
) STRICT, WITHOUT ROWID;
