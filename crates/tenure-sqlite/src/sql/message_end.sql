UPDATE message SET state = 1, ended_unix_ms = ?4, term = ?5, payload = ''
WHERE id = ?1 AND election = ?2 AND channel = ?3 AND state = 0
