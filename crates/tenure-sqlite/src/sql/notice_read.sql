SELECT id, channel, payload FROM notice WHERE election = ?1 AND id > ?2 ORDER BY id LIMIT 256
