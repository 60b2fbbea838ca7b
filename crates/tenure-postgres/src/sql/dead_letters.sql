SELECT id, channel, key, payload, deliveries FROM @schema@.tenure_message
WHERE election = $1 AND state = 2 AND ($2 IS NULL OR channel = $2)
ORDER BY id LIMIT $3
