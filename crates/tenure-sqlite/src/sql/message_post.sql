INSERT INTO message (election, channel, key, payload, posted_unix_ms) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (election, channel, key) DO NOTHING
RETURNING id
