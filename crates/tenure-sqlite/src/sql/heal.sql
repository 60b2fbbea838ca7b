-- The holder asks again: the reply to its acquire was lost (C1).
UPDATE lease SET expires_ns = ?3, ttl_ns = ?4, seq = max(seq, ?5), witness = ?6, boot = ?7
WHERE election = ?1 AND holder = ?2
