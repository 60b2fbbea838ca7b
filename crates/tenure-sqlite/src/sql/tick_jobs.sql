SELECT job, latest_ms, schedule, paused_ms, anew_ms FROM tick_job WHERE election = ?1 ORDER BY job
