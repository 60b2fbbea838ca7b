-- The fence: `SELECT tenure_fence('invoices', 42)` first in a transaction, then the writes. They
-- commit while term 42 is the latest, or not at all: until the end of the transaction nobody can
-- be granted the next one. Renewals are not held up.
--
-- It raises TN001 if the term is stale, the lease was given up, or it ran out.

CREATE OR REPLACE FUNCTION @schema@.tenure_fence(name text, term bigint) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_variable
DECLARE
    v_row record;
    v_left_ms bigint;
    v_idle_ms bigint;
BEGIN
    IF name IS NULL OR term IS NULL THEN
        RAISE EXCEPTION 'tenure_fence needs the name of an election and a term'
            USING ERRCODE = 'TN001';
    END IF;
    -- Row locks don't show who holds them; this one does (P3). Nobody takes it alone, so it
    -- never waits.
    PERFORM pg_advisory_xact_lock_shared(@schema@.tenure_fence_key(name));
    SELECT t.term, t.leader_id,
        @schema@.tenure_expires(t.last_heartbeat, t.tenure_ttl_us, NULL) AS expires
    INTO v_row FROM @schema@.@table@ AS t WHERE t.service_name = name FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'nobody ever led %', name USING ERRCODE = 'TN001',
            HINT = 'Roll back.';
    END IF;
    IF v_row.term <> term THEN
        RAISE EXCEPTION 'term % of % is stale, the latest is %', term, name, v_row.term
            USING ERRCODE = 'TN001', HINT = 'Roll back and stop: somebody else leads.';
    END IF;
    v_left_ms := floor(extract(epoch FROM v_row.expires - clock_timestamp()) * 1000)::bigint;
    IF v_row.leader_id = '' OR v_left_ms < 0 THEN
        RAISE EXCEPTION 'term % of % is over: the lease % and nobody leads', term, name,
            CASE WHEN v_row.leader_id = '' THEN 'was given up' ELSE 'ran out' END
            USING ERRCODE = 'TN001', HINT = 'Roll back and stop. In an old snapshot a renewal '
                'is not seen: call tenure_fence first in the transaction.';
    END IF;
    -- Whoever falls silent in the middle must not keep a successor out for ever. A shorter limit
    -- of the user's is kept; 0 would mean none.
    SELECT s.setting::bigint INTO v_idle_ms FROM pg_settings AS s
    WHERE s.name = 'idle_in_transaction_session_timeout';
    v_left_ms := least(greatest(v_left_ms, 1), 2147483647);
    IF v_idle_ms = 0 OR v_idle_ms > v_left_ms THEN
        PERFORM set_config('idle_in_transaction_session_timeout', v_left_ms::text, true);
    END IF;
    -- For tenure_guard. It is gone with the transaction or the savepoint, as the lock is (P4).
    PERFORM set_config('tenure.fenced', (coalesce(nullif(current_setting('tenure.fenced', true),
        ''), '{}')::jsonb || jsonb_build_object(name, term))::text, true);
END
$tenure$;

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
    IF NOT EXISTS (
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
