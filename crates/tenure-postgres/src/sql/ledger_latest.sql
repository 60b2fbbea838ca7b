SELECT job, latest_ms, schedule FROM @schema@.tenure_ledger_job WHERE election = $1 ORDER BY job
