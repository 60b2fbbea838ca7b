-- A tick that nobody knows yet, as nearly all are, of a job that is not paused.
INSERT INTO tick (election, job, scheduled_ms, state, term, attempt, claimed_ms)
SELECT ?1, ?2, ?3, 'claimed', ?4, 1, ?5
WHERE NOT EXISTS (
    SELECT 1 FROM tick_job WHERE election = ?1 AND job = ?2 AND paused_ms IS NOT NULL
)
ON CONFLICT (election, job, scheduled_ms) DO NOTHING
