-- A term: the number of this transaction, made durable by a record of its own in the log (A1). It
-- counts once this statement has been answered, because that is after its commit. The term locks
-- beside the elections let others read it. Where `tenure migrate` has been since this session
-- began, there is none: what is fenced there would not be seen here.
WITH issued AS MATERIALIZED (
    SELECT pg_catalog.set_config('synchronous_commit', CASE
            WHEN pg_catalog.current_setting('synchronous_commit') IN
                ('off', 'local', 'remote_write') THEN 'on'
            ELSE pg_catalog.current_setting('synchronous_commit') END, true) AS durably,
        pg_catalog.pg_logical_emit_message(true, 'tenure', '') AS logged,
        pg_catalog.pg_current_xact_id()::text::bigint + $1 AS term
)
SELECT i.term, (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint,
    pg_catalog.bool_and(pg_catalog.pg_try_advisory_lock(
        m.hi # (i.term >> 32)::integer,
        m.lo # (((i.term & 4294967295) # 2147483648) - 2147483648)::integer)),
    pg_catalog.min(i.durably), pg_catalog.min(i.logged::text)
FROM issued AS i CROSS JOIN unnest($2, $3) AS m (hi, lo)
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c
    WHERE c.relname = 'tenure_advisory' AND c.relkind = 'r')
GROUP BY i.term
