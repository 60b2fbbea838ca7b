-- What a clock that was ahead has left behind.
DELETE FROM tick
WHERE election = ?1 AND job = ?2 AND scheduled_ms > ?3
    AND state NOT IN ('requested', 'claimed', 'started', 'retrying')
