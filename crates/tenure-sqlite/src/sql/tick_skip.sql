INSERT INTO tick (election, job, scheduled_ms, state, term, through_ms, count, ended_ms)
VALUES (?1, ?2, ?3, 'skipped', ?4, ?5, ?6, ?7)
