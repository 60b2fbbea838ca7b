-- At the first millisecond from ?3 on that is free.
INSERT INTO tick (election, job, scheduled_ms, state, manual)
VALUES (?1, ?2, max(?3, coalesce((
    SELECT max(scheduled_ms) + 1 FROM tick
    WHERE election = ?1 AND job = ?2 AND scheduled_ms BETWEEN ?3 AND ?3 + 60000
), ?3)), 'requested', 1)
RETURNING scheduled_ms
