-- Notices, no two of them alike: those would become one (M2).
SELECT pg_catalog.pg_notify(channel, payload)
FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2))
    WITH ORDINALITY AS notice (channel, payload, place)
ORDER BY place
