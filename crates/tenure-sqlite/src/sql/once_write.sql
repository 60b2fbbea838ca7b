INSERT INTO once (election, key, state, code, term, attempt, run, claimed_ms, ended_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (election, key) DO UPDATE
SET state = excluded.state, code = excluded.code, term = excluded.term,
    attempt = excluded.attempt, run = excluded.run, claimed_ms = excluded.claimed_ms,
    ended_ms = excluded.ended_ms
