DELETE FROM message WHERE id = ?1 AND election = ?2 AND state = 2
RETURNING channel, key, payload, posted_unix_ms
