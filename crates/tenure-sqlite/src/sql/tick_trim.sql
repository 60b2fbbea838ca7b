-- All but the latest ?3 of a job, and what is open.
DELETE FROM tick
WHERE election = ?1 AND job = ?2 AND state NOT IN ('requested', 'claimed', 'started', 'retrying')
    AND scheduled_ms <= (
        SELECT scheduled_ms FROM tick WHERE election = ?1 AND job = ?2
        ORDER BY scheduled_ms DESC LIMIT 1 OFFSET ?3
    )
