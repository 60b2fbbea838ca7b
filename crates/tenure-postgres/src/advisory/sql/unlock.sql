-- Gives locks back, with the term locks beside them.
SELECT pg_catalog.pg_advisory_unlock(k.key), pg_catalog.pg_advisory_unlock(k.hi, k.lo),
    pg_catalog.set_config($4, $5, false)
FROM unnest($1, $2, $3) AS k (key, hi, lo)
