SELECT key, state, code, term, attempt, run, claimed_ms, ended_ms
FROM @schema@.tenure_once_key
WHERE election = $1 AND key = $2
