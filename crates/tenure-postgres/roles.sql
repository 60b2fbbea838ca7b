-- An app role that can take part in elections and fence its own transactions, and that can
-- neither alter the table nor delete from it. Run it as the owner of the tables:
--
--   psql -v app=my_app -v schema=public -v table=leader_election \
--        -v released=leader_election_released -f roles.sql
--
-- The table itself keeps its rules, whoever writes to it: see migrations/0002_rules.sql.

GRANT USAGE ON SCHEMA :"schema" TO :"app";
GRANT SELECT, INSERT, UPDATE ON :"schema".:"table" TO :"app";
-- Old records of releases are trimmed by whoever releases.
GRANT SELECT, INSERT, UPDATE, DELETE ON :"schema".:"released" TO :"app";
-- Keys of acknowledged messages are trimmed by whoever acknowledges.
GRANT SELECT, INSERT, UPDATE, DELETE ON :"schema".tenure_message TO :"app";
-- The history of cron is trimmed by the leader.
GRANT SELECT, INSERT, UPDATE, DELETE
    ON :"schema".tenure_ledger, :"schema".tenure_ledger_job TO :"app";
-- The terms of elections by advisory locks.
GRANT SELECT, INSERT, UPDATE ON :"schema".tenure_advisory TO :"app";
GRANT SELECT ON :"schema".tenure_migrations TO :"app";
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA :"schema" TO :"app";
