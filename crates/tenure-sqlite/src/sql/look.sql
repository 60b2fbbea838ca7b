-- Everything that is known of one election, with what its holder must be proven dead by.
SELECT l.term, l.holder, l.expires_ns, l.ttl_ns, l.seq, l.asked, l.since_unix_ms, l.metadata,
       l.boot, w.id, w.pid_ns, w.pid, w.pid_start
FROM lease AS l LEFT JOIN witness AS w ON w.id = l.witness
WHERE l.election = ?1
