-- A job is due by this schedule, and dealt with up to this instant at least.
INSERT INTO tick_job (election, job, latest_ms, schedule) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (election, job) DO UPDATE
SET latest_ms = max(latest_ms, excluded.latest_ms), schedule = excluded.schedule
