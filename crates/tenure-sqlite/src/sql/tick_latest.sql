INSERT INTO tick_job (election, job, latest_ms) VALUES (?1, ?2, ?3)
ON CONFLICT (election, job) DO UPDATE SET latest_ms = max(latest_ms, excluded.latest_ms)
