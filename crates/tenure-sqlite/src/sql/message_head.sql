SELECT id, key, payload, deliveries FROM message
WHERE election = ?1 AND channel = ?2 AND state = 0 ORDER BY id LIMIT 1
