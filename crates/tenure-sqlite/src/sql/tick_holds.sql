-- Whether the lease is held under this term.
SELECT 1 FROM lease
WHERE election = ?1 AND term = ?2 AND holder IS NOT NULL AND expires_ns > ?3
