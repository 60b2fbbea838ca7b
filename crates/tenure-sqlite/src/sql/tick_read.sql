SELECT state, manual, term, attempt FROM tick
WHERE election = ?1 AND job = ?2 AND scheduled_ms = ?3
