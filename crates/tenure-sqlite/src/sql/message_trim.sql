-- Keys are remembered for a while after their message was acknowledged.
DELETE FROM message WHERE id IN (
    SELECT id FROM message WHERE state = 1 AND ended_unix_ms < ?1 ORDER BY ended_unix_ms LIMIT 10
)
