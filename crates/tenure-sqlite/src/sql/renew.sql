-- Exactly this candidate, exactly this term, not run out, on our own clock (I4, S2).
UPDATE lease SET expires_ns = ?4, ttl_ns = ?5
WHERE election = ?1 AND holder = ?2 AND term = ?3 AND expires_ns > ?6 AND boot = ?7
RETURNING asked
