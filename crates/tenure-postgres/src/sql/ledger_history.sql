SELECT job, scheduled_ms, state, code, through_ms, count, manual, term, attempt,
       claimed_ms, started_ms, ended_ms
FROM @schema@.tenure_ledger
WHERE election = $1
ORDER BY scheduled_ms DESC, job LIMIT $2
