-- What happened to one job, the latest first.
SELECT job, scheduled_ms, state, code, through_ms, count, manual, term, attempt,
       claimed_ms, started_ms, ended_ms
FROM tick WHERE election = ?1 AND job = ?3
ORDER BY scheduled_ms DESC LIMIT ?2
