INSERT INTO tenure_tick (election, job, scheduled_at, term) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (election, job, scheduled_at) DO NOTHING
