CREATE TABLE IF NOT EXISTS tenure_tick (
    election TEXT NOT NULL,
    job TEXT NOT NULL,
    scheduled_at TEXT NOT NULL,
    term INTEGER NOT NULL,
    PRIMARY KEY (election, job, scheduled_at)
) WITHOUT ROWID;
