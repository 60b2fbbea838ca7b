-- A new row, or the next attempt of one that was there.
INSERT INTO tick (election, job, scheduled_ms, state, term, attempt, claimed_ms)
VALUES (?1, ?2, ?3, 'claimed', ?4, ?5, ?6)
ON CONFLICT (election, job, scheduled_ms) DO UPDATE SET
    state = 'claimed',
    term = excluded.term,
    attempt = excluded.attempt,
    claimed_ms = excluded.claimed_ms,
    started_ms = NULL
