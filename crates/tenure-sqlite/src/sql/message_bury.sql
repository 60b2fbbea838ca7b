UPDATE message SET state = 2, ended_unix_ms = ?2 WHERE id = ?1
