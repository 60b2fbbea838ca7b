-- At the first millisecond from ?3 on that is free, and at no whole second: a schedule has those.
INSERT INTO tick (election, job, scheduled_ms, state, manual)
SELECT ?1, ?2, free + (free % 1000 = 0), 'requested', 1 FROM (
    SELECT max(?3, coalesce((
        SELECT max(scheduled_ms) + 1 FROM tick
        WHERE election = ?1 AND job = ?2 AND scheduled_ms BETWEEN ?3 AND ?3 + 60000
    ), ?3)) AS free
)
RETURNING scheduled_ms
