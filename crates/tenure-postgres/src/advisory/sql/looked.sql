-- Says who holds locks, and takes none.
WITH tried AS MATERIALIZED (
    SELECT k.place, k.key, k.hi, false AS won
    FROM unnest($1, $2) WITH ORDINALITY AS k (key, hi, place)
)
