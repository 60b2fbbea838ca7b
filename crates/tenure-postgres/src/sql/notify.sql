-- A notice to oneself, or a hint that something was posted.
SELECT pg_catalog.pg_notify($1, $2)
