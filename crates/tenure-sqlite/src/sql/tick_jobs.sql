SELECT job, latest_ms, schedule FROM tick_job WHERE election = ?1 ORDER BY job
