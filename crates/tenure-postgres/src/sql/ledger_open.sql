SELECT job, scheduled_ms, state, code, through_ms, count, manual, term, attempt,
       claimed_ms, started_ms, ended_ms
FROM @schema@.tenure_ledger
WHERE election = $1 AND state IN ('requested', 'claimed', 'started')
ORDER BY scheduled_ms, job LIMIT $2
