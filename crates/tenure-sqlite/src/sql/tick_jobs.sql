SELECT job, latest_ms FROM tick_job WHERE election = ?1 ORDER BY job
