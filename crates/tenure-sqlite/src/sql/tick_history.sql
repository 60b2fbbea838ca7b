-- What happened, the latest first.
SELECT job, scheduled_ms, state, code, through_ms, count, manual, term, attempt,
       claimed_ms, started_ms, ended_ms
FROM tick WHERE election = ?1
ORDER BY scheduled_ms DESC, job LIMIT ?2
