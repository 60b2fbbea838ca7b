-- The terms that these elections had before.
SELECT pg_catalog.pg_advisory_unlock(k.hi, k.lo) FROM unnest($1, $2) AS k (hi, lo)
