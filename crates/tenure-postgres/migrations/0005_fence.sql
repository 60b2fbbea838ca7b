-- The fence: `SELECT tenure_fence('invoices', 42)` first in a transaction, then the writes. They
-- commit while term 42 is the latest, or not at all: until the end of the transaction nobody can
-- be granted the next one. Renewals are not held up.
--
-- It raises TN001 if the term is stale, the lease was given up, or it ran out.
--
-- The function itself is made with the advisory locks, because it knows both kinds of elections.

-- For the user's own tables, against a forgotten fence: one in autocommit, or before a savepoint
-- that was rolled back to. With the name of an election only its fence will do:
--   CREATE TRIGGER fenced BEFORE INSERT OR UPDATE OR DELETE ON invoice
--       FOR EACH ROW EXECUTE FUNCTION tenure_guard('invoices');
CREATE OR REPLACE FUNCTION @schema@.tenure_guard() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    v_fenced jsonb := nullif(current_setting('tenure.fenced', true), '')::jsonb;
BEGIN
    IF v_fenced IS NULL OR TG_NARGS > 0 AND NOT v_fenced ? TG_ARGV[0] THEN
        RAISE EXCEPTION '% is written to without a fence%', TG_RELID::regclass,
            CASE WHEN TG_NARGS > 0 THEN ' of ' || TG_ARGV[0] ELSE '' END
            USING ERRCODE = 'TN001', HINT = 'Call tenure_fence(name, term) first, at the top '
                'level of an explicit transaction.';
    END IF;
    IF TG_LEVEL = 'ROW' AND TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END
$tenure$;

-- Ends the sessions that still fence a lease which nobody has held for so long (P3): a client
-- that is frozen in the middle of a statement is not idle, and no timeout of the server's fires.
-- Returns the pids. The caller needs the right to end them: the same role, or pg_signal_backend.
CREATE OR REPLACE FUNCTION @schema@.tenure_end_fence(p_name text, p_grace_us bigint)
RETURNS integer[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    v_key bigint := @schema@.tenure_fence_key(p_name);
    v_pids integer[];
BEGIN
    -- Whose election is one by an advisory lock at present is not over with the lease (P8).
    IF @schema@.tenure_is_advisory(p_name) OR NOT EXISTS (
        SELECT FROM @schema@.@table@ AS t WHERE t.service_name = p_name AND clock_timestamp()
            >= CASE WHEN t.leader_id = '' THEN t.last_heartbeat
                ELSE @schema@.tenure_expires(t.last_heartbeat, t.tenure_ttl_us, NULL) END
                + p_grace_us * interval '1 microsecond')
    THEN
        RETURN '{}';
    END IF;
    SELECT array_agg(l.pid) INTO v_pids FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
        AND l.database = (SELECT d.oid FROM pg_database AS d
            WHERE d.datname = current_database())
        AND l.classid = ((v_key >> 32) & 4294967295)::oid
        AND l.objid = (v_key & 4294967295)::oid
        AND l.pid <> pg_backend_pid();
    PERFORM pg_terminate_backend(pid) FROM unnest(v_pids) AS pid;
    RETURN coalesce(v_pids, '{}');
END
$tenure$;
