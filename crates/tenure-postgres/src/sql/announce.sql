-- Hints to others, after what they are about has committed (M2).
SELECT pg_catalog.pg_notify($1, payload) FROM pg_catalog.unnest($2) AS payload
