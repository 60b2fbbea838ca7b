-- Tries to take locks, and says who holds those that others have. Won: from the end of this very
-- statement the server ends the session if it falls silent (A2).
WITH first AS MATERIALIZED (
    SELECT k.place, k.key, k.hi, pg_catalog.pg_try_advisory_lock(k.key) AS won
    FROM unnest($1, $2) WITH ORDINALITY AS k (key, hi, place)
), armed AS MATERIALIZED (
    SELECT CASE WHEN pg_catalog.bool_or(f.won) THEN pg_catalog.set_config($4, $5, false) END AS done
    FROM first AS f
), tried AS MATERIALIZED (
    SELECT f.place, f.key, f.hi, f.won, a.done FROM first AS f CROSS JOIN armed AS a
)
