-- The three functions of the older design, with its names and signatures: its clients compete
-- with tenure in the same elections. Followers that poll lock nothing; the clock is read once the
-- row is locked; the ttl of the holder decides.

-- What clients count on stays: functions that run with the rights of their owner go on doing so.
-- One that takes text where ours takes varchar would hide ours, or make calls by name ambiguous:
-- ours takes its place, and is for whoever that one was for.
DO $tenure$
DECLARE
    f record;
    v_kept jsonb := '[]';
BEGIN
    FOR f IN
        SELECT p.oid, p.proname, p.prosecdef, p.proacl, 25 = ANY (p.proargtypes) AS replaced,
            (SELECT jsonb_agg(a.grantee::regrole) FROM aclexplode(p.proacl) AS a
                WHERE a.grantee NOT IN (0, p.proowner)) AS grantees,
            p.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(p.proacl) AS a
                WHERE a.grantee = 0) AS is_public
        FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = (SELECT n.oid FROM pg_catalog.pg_namespace AS n
                WHERE n.nspname = @schema_literal@)
            AND (p.proname, p.pronargs) IN (('try_become_leader', 3), ('leader_heartbeat', 2),
                ('step_down', 2))
            AND p.proargtypes[0] IN (25, 1043) AND p.proargtypes[1] IN (25, 1043)
            AND (p.pronargs = 2 OR p.proargtypes[2] = 23)
    LOOP
        v_kept := v_kept || jsonb_build_object('name', f.proname, 'definer', f.prosecdef,
            'grantees', coalesce(f.grantees, '[]'), 'revoke', f.replaced AND NOT f.is_public);
        IF f.replaced THEN
            EXECUTE format('DROP FUNCTION %s', f.oid::regprocedure);
        END IF;
    END LOOP;
    PERFORM set_config('tenure.kept', v_kept::text, true);
END
$tenure$;

CREATE OR REPLACE FUNCTION @schema@.try_become_leader(
    p_service_name varchar, p_candidate_id varchar, p_timeout_seconds integer DEFAULT 30
) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_variable
DECLARE
    v_ttl_us bigint := greatest(coalesce(p_timeout_seconds, 30), 1)::bigint * 1000000;
    v_now timestamptz;
    v_row record;
    v_other record;
BEGIN
    IF p_candidate_id IS NULL OR p_candidate_id = '' THEN
        RAISE EXCEPTION 'p_candidate_id is empty; give each instance an id of its own'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM @schema@.tenure_durably();
    SELECT t.* INTO v_row FROM @schema@.@table@ AS t WHERE t.service_name = p_service_name;
    IF NOT FOUND THEN
        PERFORM set_config('tenure.own', 'on', true);
        INSERT INTO @schema@.@table@ (service_name, leader_id, term)
        VALUES (p_service_name, '', 0) ON CONFLICT (service_name) DO NOTHING;
        PERFORM set_config('tenure.own', '', true);
        SELECT t.* INTO v_row FROM @schema@.@table@ AS t WHERE t.service_name = p_service_name;
        IF NOT FOUND THEN
            -- An old snapshot does not see what another transaction has just put there.
            RETURN false;
        END IF;
    END IF;
    v_now := clock_timestamp();
    IF v_row.leader_id <> ''
        AND v_now < @schema@.tenure_expires(v_row.last_heartbeat, v_row.tenure_ttl_us, v_ttl_us)
    THEN
        IF v_row.leader_id <> p_candidate_id THEN
            RETURN false;
        END IF;
        -- Its own: it is renewed, and waits for whoever is at the row.
        SELECT t.* INTO v_row FROM @schema@.@table@ AS t
        WHERE t.service_name = p_service_name FOR NO KEY UPDATE;
        v_now := clock_timestamp();
        IF v_row.leader_id = p_candidate_id AND v_now < @schema@.tenure_expires(
            v_row.last_heartbeat, v_row.tenure_ttl_us, v_ttl_us)
        THEN
            PERFORM set_config('tenure.own', 'on', true);
            UPDATE @schema@.@table@ AS t SET last_heartbeat = v_now, tenure_ttl_us = v_ttl_us
            WHERE t.service_name = p_service_name;
            PERFORM set_config('tenure.own', '', true);
            RETURN true;
        END IF;
    END IF;
    SELECT t.* INTO v_row FROM @schema@.@table@ AS t
    WHERE t.service_name = p_service_name FOR UPDATE SKIP LOCKED;
    v_now := clock_timestamp();
    IF NOT FOUND THEN
        -- Somebody else is taking it, or a fenced transaction is not over. One that has lasted for
        -- too long is ended (P3): in a fleet of such clients nobody else would.
        BEGIN
            PERFORM @schema@.tenure_end_fence(p_service_name, 10000000);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE WARNING 'a fenced transaction of % has outlasted its lease, and this role may '
                'not end it: %', p_service_name, SQLERRM;
        END;
        RETURN false;
    END IF;
    IF v_row.leader_id <> '' AND v_now < @schema@.tenure_expires(
        v_row.last_heartbeat, v_row.tenure_ttl_us, v_ttl_us)
    THEN
        RETURN false;
    END IF;
    SELECT l.* INTO v_other FROM @schema@.tenure_leave_advisory(p_service_name) AS l;
    IF v_other.state <> 'free' THEN
        -- The election is led by an advisory lock (P8).
        RETURN false;
    END IF;
    PERFORM set_config('tenure.own', 'on', true);
    UPDATE @schema@.@table@ AS t
    SET leader_id = p_candidate_id, term = v_row.term + 1, last_heartbeat = v_now,
        tenure_base = @schema@.tenure_base_for(v_row.term + 1, v_row.tenure_base,
            greatest(@schema@.tenure_least(), v_other.term + 1)),
        metadata = '{}', tenure_ttl_us = v_ttl_us, tenure_seq = 0, tenure_asked = false,
        tenure_since = v_now
    WHERE t.service_name = p_service_name;
    PERFORM set_config('tenure.own', '', true);
    RETURN true;
END
$tenure$;

CREATE OR REPLACE FUNCTION @schema@.leader_heartbeat(
    p_service_name varchar, p_leader_id varchar
) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_variable
DECLARE
    v_now timestamptz;
    v_row record;
BEGIN
    PERFORM @schema@.tenure_durably();
    SELECT t.* INTO v_row FROM @schema@.@table@ AS t
    WHERE t.service_name = p_service_name AND t.leader_id = p_leader_id AND t.leader_id <> ''
    FOR NO KEY UPDATE;
    v_now := clock_timestamp();
    IF NOT FOUND OR v_now >= @schema@.tenure_expires(
        v_row.last_heartbeat, v_row.tenure_ttl_us, NULL)
    THEN
        RETURN false;
    END IF;
    PERFORM set_config('tenure.own', 'on', true);
    UPDATE @schema@.@table@ AS t SET last_heartbeat = v_now
    WHERE t.service_name = p_service_name;
    PERFORM set_config('tenure.own', '', true);
    RETURN true;
END
$tenure$;

CREATE OR REPLACE FUNCTION @schema@.step_down(
    p_service_name varchar, p_leader_id varchar
) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_variable
DECLARE
    v_row record;
BEGIN
    SELECT t.* INTO v_row FROM @schema@.@table@ AS t
    WHERE t.service_name = p_service_name AND t.leader_id = p_leader_id AND t.leader_id <> ''
    FOR NO KEY UPDATE;
    IF NOT FOUND OR clock_timestamp() >= @schema@.tenure_expires(
        v_row.last_heartbeat, v_row.tenure_ttl_us, NULL)
    THEN
        RETURN false;
    END IF;
    PERFORM set_config('tenure.own', 'on', true);
    UPDATE @schema@.@table@ AS t SET leader_id = '' WHERE t.service_name = p_service_name;
    PERFORM set_config('tenure.own', '', true);
    -- The caller's transaction is not ours to end, so the hint goes with it; never into a queue
    -- that is filling up, because a full one fails the commit (M2).
    IF pg_notification_queue_usage() < 0.5 THEN
        PERFORM pg_notify(@channel_literal@, p_service_name);
    END IF;
    RETURN true;
END
$tenure$;

DO $tenure$
DECLARE
    f record;
    v_function text;
    v_grantee text;
BEGIN
    FOR f IN SELECT k.* FROM jsonb_to_recordset(current_setting('tenure.kept')::jsonb)
        AS k (name text, definer boolean, grantees jsonb, revoke boolean)
    LOOP
        v_function := format('%I.%I(varchar, varchar%s)', @schema_literal@, f.name,
            CASE WHEN f.name = 'try_become_leader' THEN ', integer' ELSE '' END);
        IF f.definer THEN
            EXECUTE 'ALTER FUNCTION ' || v_function || ' SECURITY DEFINER';
        END IF;
        IF f.revoke THEN
            EXECUTE 'REVOKE EXECUTE ON FUNCTION ' || v_function || ' FROM PUBLIC';
        END IF;
        FOR v_grantee IN SELECT jsonb_array_elements_text(f.grantees) LOOP
            EXECUTE 'GRANT EXECUTE ON FUNCTION ' || v_function || ' TO ' || v_grantee;
        END LOOP;
    END LOOP;
END
$tenure$;
