SELECT 1 FROM tick_job WHERE election = ?1 AND job = ?2 AND paused_ms IS NOT NULL
