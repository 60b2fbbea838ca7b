-- What is requested, claimed or started, after the tick of ?3 and ?4 if there is one.
SELECT job, scheduled_ms, state, code, through_ms, count, manual, term, attempt,
       claimed_ms, started_ms, ended_ms
FROM tick WHERE election = ?1 AND state IN ('requested', 'claimed', 'started', 'retrying')
    AND (?3 IS NULL OR (scheduled_ms, job) > (?3, ?4))
ORDER BY scheduled_ms, job LIMIT ?2
