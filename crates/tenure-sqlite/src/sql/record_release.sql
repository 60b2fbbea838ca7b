INSERT INTO released (election, candidate, seq, at_ns) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (election, candidate) DO UPDATE SET
    seq = max(seq, excluded.seq),
    at_ns = excluded.at_ns
