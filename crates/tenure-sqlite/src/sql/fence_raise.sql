INSERT INTO tenure_fence (election, term) VALUES (?1, ?2)
ON CONFLICT (election) DO UPDATE SET term = excluded.term
