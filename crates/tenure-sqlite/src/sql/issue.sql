-- A new term. The last condition bars the door once more: terms only rise (I2).
INSERT INTO lease
    (election, term, holder, expires_ns, ttl_ns, seq, asked, witness, since_unix_ms, metadata,
     boot)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, ?9, ?10)
ON CONFLICT (election) DO UPDATE SET
    term = excluded.term,
    holder = excluded.holder,
    expires_ns = excluded.expires_ns,
    ttl_ns = excluded.ttl_ns,
    seq = excluded.seq,
    asked = 0,
    witness = excluded.witness,
    since_unix_ms = excluded.since_unix_ms,
    metadata = excluded.metadata,
    boot = excluded.boot
WHERE excluded.term > lease.term
