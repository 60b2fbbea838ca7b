INSERT INTO notice (election, channel, at_ns, payload) VALUES (?1, ?2, ?3, ?4)
