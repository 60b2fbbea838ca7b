SELECT channel, sum(state = 0), sum(state = 2), min(posted_unix_ms) FILTER (WHERE state = 0)
FROM (
    SELECT channel, state, posted_unix_ms FROM message WHERE election = ?1 AND state = 0
    UNION ALL
    SELECT channel, state, posted_unix_ms FROM message WHERE election = ?1 AND state = 2
)
GROUP BY channel ORDER BY channel
