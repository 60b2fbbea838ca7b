-- Hints to others, after what they are about has committed (M2). A notification does not survive a
-- crash anyway, so nobody waits until its commit is on the disk: that would double the time that a
-- hand-over takes.
SELECT pg_catalog.pg_notify($1, payload)
FROM pg_catalog.set_config('synchronous_commit', 'off', true) AS quick,
    pg_catalog.unnest($2) AS payload
