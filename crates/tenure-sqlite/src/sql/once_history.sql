-- All keys, the latest claimed first.
SELECT key, state, code, term, attempt, run, claimed_ms, ended_ms
FROM once WHERE election = ?1
ORDER BY claimed_ms DESC, key LIMIT ?2
