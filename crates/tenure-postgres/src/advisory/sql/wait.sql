-- Ends when the session of that number has. Shared, and gone with this statement, so that nobody
-- who is frozen keeps anything.
SELECT pg_catalog.pg_advisory_xact_lock_shared(1952804469, $1)
