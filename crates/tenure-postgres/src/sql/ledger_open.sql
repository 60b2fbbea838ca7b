SELECT job, scheduled_ms, state, code, through_ms, count, manual, term, attempt,
       claimed_ms, started_ms, ended_ms
FROM @schema@.tenure_ledger
WHERE election = $1 AND state IN ('requested', 'claimed', 'started', 'retrying')
    AND ($3::bigint IS NULL OR (scheduled_ms, job COLLATE "C") > ($3, $4 COLLATE "C"))
ORDER BY scheduled_ms, job COLLATE "C" LIMIT $2
