-- Ends when the session of that number has, or after the lock_timeout, and says which. Shared, and
-- gone with this message, so that nobody who is frozen keeps anything. A wait that is over is
-- caught here: it would fill the log of the server.
DO $$BEGIN
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(1952804469, @pid@);
EXCEPTION WHEN lock_not_available THEN
    NULL;
END$$;
SELECT pg_catalog.pg_try_advisory_xact_lock_shared(1952804469, @pid@)
