-- A session that waits, for a while at a time, and not for a client that is gone.
SELECT pg_catalog.set_config(s.name, s.value, false)
FROM (VALUES ('statement_timeout', '0'), ('lock_timeout', $1), ('idle_session_timeout', '0'),
    ('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0'),
    ('client_connection_check_interval', '1s')
) AS s (name, value)
JOIN pg_catalog.pg_settings AS known ON known.name = s.name
