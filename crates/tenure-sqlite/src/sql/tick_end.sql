UPDATE tick SET state = ?4, code = ?5, ended_ms = ?6
WHERE election = ?1 AND job = ?2 AND scheduled_ms = ?3
