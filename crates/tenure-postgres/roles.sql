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
-- Keys of work that is done once are never deleted.
GRANT SELECT, INSERT, UPDATE ON :"schema".tenure_once_key TO :"app";
-- The terms of elections by advisory locks.
GRANT SELECT, INSERT, UPDATE ON :"schema".tenure_advisory TO :"app";
GRANT SELECT ON :"schema".tenure_migrations, :"schema".tenure_floor TO :"app";
-- By name: the schema may hold functions of others. These matter where EXECUTE was revoked from
-- PUBLIC.
GRANT EXECUTE ON FUNCTION
    :"schema".try_become_leader(varchar, varchar, integer),
    :"schema".leader_heartbeat(varchar, varchar),
    :"schema".step_down(varchar, varchar),
    :"schema".tenure_acknowledge,
    :"schema".tenure_advisory_begin,
    :"schema".tenure_advisory_end_fence,
    :"schema".tenure_advisory_fence,
    :"schema".tenure_advisory_fence_key,
    :"schema".tenure_advisory_holds,
    :"schema".tenure_advisory_warm_up,
    :"schema".tenure_apply,
    :"schema".tenure_backlog,
    :"schema".tenure_base_for,
    :"schema".tenure_call,
    :"schema".tenure_channel_key,
    :"schema".tenure_cron_request,
    :"schema".tenure_cron_steer,
    :"schema".tenure_durably,
    :"schema".tenure_end_fence,
    :"schema".tenure_expires,
    :"schema".tenure_fence,
    :"schema".tenure_fence_key,
    :"schema".tenure_forget,
    :"schema".tenure_guard,
    :"schema".tenure_is_advisory,
    :"schema".tenure_least,
    :"schema".tenure_leave_advisory,
    :"schema".tenure_ledger_record,
    :"schema".tenure_once,
    :"schema".tenure_once_step,
    :"schema".tenure_post,
    :"schema".tenure_post_all,
    :"schema".tenure_refuse_other,
    :"schema".tenure_release,
    :"schema".tenure_renew,
    :"schema".tenure_replay,
    :"schema".tenure_take,
    :"schema".tenure_term,
    :"schema".tenure_tick,
    :"schema".tenure_try_lead,
    :"schema".tenure_unix_ms,
    :"schema".tenure_warm_up
TO :"app";
