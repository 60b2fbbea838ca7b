-- A tick that nobody knows yet, as nearly all are.
INSERT INTO tick (election, job, scheduled_ms, state, term, attempt, claimed_ms)
VALUES (?1, ?2, ?3, 'claimed', ?4, 1, ?5)
ON CONFLICT (election, job, scheduled_ms) DO NOTHING
