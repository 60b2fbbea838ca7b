-- What tells two deployments apart: the instant of the first migration.
SELECT coalesce(min(at), '-infinity')::text || ' ' || current_database()
FROM @schema@.tenure_migrations
