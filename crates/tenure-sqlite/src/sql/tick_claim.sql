-- One that was asked for, or the next attempt of one that a former term left, or that failed.
UPDATE tick SET state = 'claimed', term = ?4, attempt = ?5, claimed_ms = ?6, started_ms = NULL,
    ended_ms = NULL, code = NULL
WHERE election = ?1 AND job = ?2 AND scheduled_ms = ?3
