UPDATE tick SET state = 'started', started_ms = ?4
WHERE election = ?1 AND job = ?2 AND scheduled_ms = ?3
