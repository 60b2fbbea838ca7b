SELECT key, state, code, term, attempt, run, claimed_ms, ended_ms
FROM once WHERE election = ?1 AND key = ?2
