-- Three calls for clients that reach the database over HTTP (PostgREST, supabase `rpc`) or with one
-- statement at a time: their answers have the term, and how long the lease lasts, which a client
-- needs for a deadline of its own. They are made of `tenure_apply`, and so keep its rules.
--
-- Terms are integers here: the column `term` of the table. The fence takes that one, too.

-- One op for them. The columns of a renewal are those of its parameters, which PL/pgSQL does not
-- allow: hence a function behind the three.
CREATE OR REPLACE FUNCTION @schema@.tenure_call(
    p_verb text, p_service text, p_candidate text, p_ttl_ms integer, p_term integer, p_seq bigint
) RETURNS TABLE (granted boolean, term integer, remaining_ms integer, holder text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
#variable_conflict use_column
DECLARE
    v_durable text := current_setting('synchronous_commit');
    v_whole bigint;
    r record;
BEGIN
    IF NOT coalesce(octet_length(p_service) BETWEEN 1 AND 255
        AND p_service !~ '[[:cntrl:]]', false)
    THEN
        RAISE EXCEPTION 'service must have 1 to 255 bytes and no control characters'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT coalesce(octet_length(p_candidate) BETWEEN 1 AND 255
        AND p_candidate !~ '[[:cntrl:]]', false)
    THEN
        RAISE EXCEPTION 'candidate must have 1 to 255 bytes and no control characters; give each '
            'process an id of its own' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_verb <> 'release' AND NOT coalesce(p_ttl_ms >= 100, false) THEN
        RAISE EXCEPTION 'ttl_ms is %, and must be 100 at least', coalesce(p_ttl_ms::text, 'null')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_verb = 'renew' AND p_term IS NULL THEN
        RAISE EXCEPTION 'term is null; give the one that was granted'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- The whole term. The base changes with hands only, and then there is another term.
    v_whole := p_term + coalesce((SELECT t.tenure_base FROM @schema@.@table@ AS t
        WHERE t.service_name = p_service), 0);
    IF p_verb = 'release' AND p_term IS NULL AND p_seq IS NULL THEN
        -- Whatever it holds. Acquires that come later are none of its business.
        v_whole := coalesce((SELECT t.term + t.tenure_base FROM @schema@.@table@ AS t
            WHERE t.service_name = p_service AND t.leader_id = p_candidate), 0);
    END IF;
    SELECT a.* INTO r FROM @schema@.tenure_apply(
        ARRAY[p_verb], ARRAY[p_service], ARRAY[p_candidate],
        -- A release without a number is behind all acquires, and refuses none.
        ARRAY[coalesce(p_seq, CASE WHEN p_verb = 'release' THEN -1 ELSE 0 END)],
        ARRAY[v_whole], ARRAY[NULL::bigint], ARRAY[p_ttl_ms * 1000::bigint], ARRAY['{}']
    ) AS a;
    IF p_verb = 'release' THEN
        -- The transaction may be about more than this.
        PERFORM set_config('synchronous_commit', v_durable, true);
    END IF;

    IF r.outcome = 'elsewhere' THEN
        PERFORM @schema@.tenure_refuse_other(p_service, 'held', r.led_by);
    ELSIF r.outcome = 'used up' THEN
        RAISE EXCEPTION 'the terms of % are used up; give the election another name', p_service
            USING ERRCODE = 'TN003';
    ELSIF r.outcome = 'busy' AND (p_verb <> 'acquire' OR r.holder = p_candidate) THEN
        -- It could not be looked at, so nobody knows. Not a refusal: whoever leads goes on.
        RAISE EXCEPTION 'another transaction is at the election %; try again', p_service
            USING ERRCODE = 'lock_not_available', DETAIL = coalesce(
                'Its backend has the pid ' || r.led_by, '');
    ELSIF r.outcome = 'busy' AND r.fenced_us > 10000000 THEN
        -- One that has lasted for too long is ended (P3): in a fleet of such clients nobody else
        -- would.
        BEGIN
            PERFORM @schema@.tenure_end_fence(p_service, 10000000);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE WARNING 'a fenced transaction of % has outlasted its lease, and this role may '
                'not end it: %', p_service, SQLERRM;
        END;
    END IF;

    granted := r.outcome = 'granted';
    term := coalesce(CASE WHEN r.term <= 2147483647 THEN r.term
        ELSE (SELECT t.term FROM @schema@.@table@ AS t WHERE t.service_name = p_service) END, 0);
    IF p_verb = 'acquire' AND granted AND term <= p_term THEN
        RAISE EXCEPTION 'above is %, which is no term of %', p_term, p_service
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF granted THEN
        holder := p_candidate;
        remaining_ms := p_ttl_ms;
    ELSE
        holder := coalesce(r.holder, '');
        remaining_ms := least(coalesce(ceil(r.remaining_us / 1000.0), 0), 2147483647);
    END IF;
    RETURN NEXT;
END
$tenure$;

-- These run with the rights of their owner, so that a role may take part without any right on the
-- tables. New ones are therefore for nobody but the owner, whatever the default privileges of the
-- schema are: who may call them has to be said. What was said stays if they are created again.
DO $tenure$
BEGIN
    PERFORM set_config('tenure.new', coalesce(string_agg(f, ';'), ''), true)
    FROM unnest(ARRAY[
        'tenure_try_lead(text, text, integer, integer, bigint)',
        'tenure_renew(text, text, integer, integer)',
        'tenure_release(text, text, integer, bigint)'
    ]) AS f WHERE to_regprocedure(quote_ident(@schema_literal@) || '.' || f) IS NULL;
END
$tenure$;

-- Asks for the lease. `above`: the last term that this candidate has led; the same one is never
-- granted again (C1). `seq`: counts the calls of this candidate; one that comes after a release
-- with its number or a higher one is refused (C2).
CREATE OR REPLACE FUNCTION @schema@.tenure_try_lead(
    service text, candidate text, ttl_ms integer, above integer DEFAULT 0, seq bigint DEFAULT 0
) RETURNS TABLE (granted boolean, term integer, remaining_ms integer, holder text)
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $tenure$
    SELECT c.* FROM @schema@.tenure_call('acquire', $1, $2, $3, coalesce($4, 0), $5) AS c;
$tenure$;

-- Renews exactly this term of this candidate. It waits for nobody: 55P03 if others are at the row.
CREATE OR REPLACE FUNCTION @schema@.tenure_renew(
    service text, candidate text, term integer, ttl_ms integer
) RETURNS TABLE (granted boolean, term integer, remaining_ms integer, holder text)
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $tenure$
    SELECT c.* FROM @schema@.tenure_call('renew', $1, $2, $4, $3, NULL) AS c;
$tenure$;

-- Gives the lease back: that of this term, or whatever the candidate holds. With `seq` its calls of
-- that number and below are refused from now on.
CREATE OR REPLACE FUNCTION @schema@.tenure_release(
    service text, candidate text, term integer DEFAULT NULL, seq bigint DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $tenure$
BEGIN
    IF NOT (SELECT c.granted FROM @schema@.tenure_call('release', $1, $2, NULL, $3, $4) AS c) THEN
        RETURN false;
    END IF;
    -- With the caller's transaction, and never into a queue that is filling up (M2).
    IF pg_notification_queue_usage() < 0.5 THEN
        PERFORM pg_notify(@channel_literal@, $1);
    END IF;
    RETURN true;
END
$tenure$;

DO $tenure$
DECLARE
    v_function text;
    v_grantee regrole;
BEGIN
    FOREACH v_function IN ARRAY string_to_array(current_setting('tenure.new'), ';') LOOP
        v_function := quote_ident(@schema_literal@) || '.' || v_function;
        EXECUTE 'REVOKE ALL ON FUNCTION ' || v_function || ' FROM PUBLIC';
        FOR v_grantee IN
            SELECT DISTINCT a.grantee FROM pg_catalog.pg_proc AS p
            CROSS JOIN LATERAL aclexplode(p.proacl) AS a
            WHERE p.oid = v_function::regprocedure AND a.grantee NOT IN (0, p.proowner)
        LOOP
            EXECUTE 'REVOKE ALL ON FUNCTION ' || v_function || ' FROM ' || v_grantee;
        END LOOP;
    END LOOP;
END
$tenure$;
