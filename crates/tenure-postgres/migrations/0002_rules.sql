-- The rules of the table, kept by the table itself (P6): whoever writes to it, also the functions
-- of the older design if somebody creates them again, can't take a held lease, revive one that
-- ran out, lower a term or take over from a transaction that is fenced.

-- Bodies that follow RETURN are bound to their operators when they are created, so that no
-- search path can change what they mean.

-- When the lease of a row runs out. A holder that gave no ttl has 90 s, or as long as the caller
-- would wait if that is longer.
CREATE OR REPLACE FUNCTION @schema@.tenure_expires(
    p_last timestamptz, p_ttl_us bigint, p_caller_us bigint
) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN p_last + coalesce(p_ttl_us, greatest(90000000, p_caller_us)) * interval '1 microsecond';

-- With which base the column is a term of at least p_least. A base is beyond all integers, if there
-- is one.
CREATE OR REPLACE FUNCTION @schema@.tenure_base_for(
    p_column bigint, p_base bigint, p_least bigint
) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_column + p_base >= coalesce(p_least, 0) THEN p_base
    ELSE greatest(p_least - p_column, 2147483648) END;

-- The least term that may be issued here, by what was raised with `tenure migrate` (C5).
CREATE OR REPLACE FUNCTION @schema@.tenure_least() RETURNS bigint
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $tenure$
    SELECT coalesce(max(f.term), 0) + 1 FROM @schema@.tenure_floor AS f;
$tenure$;

-- Has all terms that are issued from now on be above this one. A term that is held stays what it is
-- until its reign ends. Returns the greatest that was ever given.
CREATE OR REPLACE FUNCTION @schema@.tenure_raise_terms(p_above bigint) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
BEGIN
    PERFORM @schema@.tenure_durably();
    IF p_above >= @schema@.tenure_least() THEN
        INSERT INTO @schema@.tenure_floor (term) VALUES (p_above);
    END IF;
    RETURN @schema@.tenure_least() - 1;
END
$tenure$;

-- Which advisory lock shows in `pg_locks` that a transaction is fenced (P3).
CREATE OR REPLACE FUNCTION @schema@.tenure_fence_key(p_name text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN pg_catalog.hashtextextended(p_name, 8399166)
    # pg_catalog.hashtextextended(@table_literal@, 2718281);

CREATE OR REPLACE FUNCTION @schema@.tenure_rules() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
DECLARE
    -- Set around the writes of tenure's own functions. Not in their SET clause: only a superuser
    -- may put a setting of this kind there.
    v_own boolean := coalesce(current_setting('tenure.own', true), '') = 'on';
    v_now timestamptz := clock_timestamp();
    v_held boolean;
    v_other record;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'the terms in % must not be lost; vacate leases with step_down', TG_RELID
            ::regclass USING ERRCODE = 'TN003';
    END IF;
    IF TG_OP = 'DELETE' THEN
        UPDATE @schema@.@table@ SET leader_id = ''
        WHERE service_name = OLD.service_name AND leader_id <> '';
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF NOT v_own THEN
            -- A new name, or a row of a dump that is restored: its term is kept (P8). A lease in it
            -- counts from now, because its holder may have renewed it since.
            NEW.term := greatest(NEW.term, CASE WHEN NEW.leader_id = '' THEN 0 ELSE 1 END);
            NEW.last_heartbeat := v_now;
            NEW.tenure_since := coalesce(NEW.tenure_since, v_now);
            IF NEW.leader_id <> '' THEN
                SELECT l.* INTO v_other FROM @schema@.tenure_leave_advisory(NEW.service_name) AS l;
                PERFORM @schema@.tenure_refuse_other(NEW.service_name, v_other.state,
                    v_other.holder);
                NEW.tenure_base := @schema@.tenure_base_for(NEW.term, NEW.tenure_base,
                    greatest(@schema@.tenure_least(), v_other.term + 1));
            END IF;
        END IF;
        RETURN NEW;
    END IF;

    v_held := OLD.leader_id <> ''
        AND v_now < @schema@.tenure_expires(OLD.last_heartbeat, OLD.tenure_ttl_us, NULL);
    IF NEW.service_name <> OLD.service_name THEN
        RAISE EXCEPTION 'the election % can''t be renamed', OLD.service_name
            USING ERRCODE = 'TN003';
    END IF;
    IF NEW.tenure_base <> OLD.tenure_base AND NOT v_own THEN
        RAISE EXCEPTION 'the base of the terms of % can''t be changed; use `tenure migrate '
            '--terms-above`', OLD.service_name USING ERRCODE = 'TN003';
    END IF;
    IF NEW.leader_id = '' AND OLD.leader_id <> '' AND NEW.term = OLD.term THEN
        -- Vacated. The term stays.
        NEW.last_heartbeat := v_now;
        NEW.tenure_asked := false;
        NEW.tenure_since := NULL;
        NEW.metadata := '{}';
        RETURN NEW;
    END IF;
    IF NEW.leader_id = OLD.leader_id AND NEW.term = OLD.term THEN
        IF v_own OR NEW.last_heartbeat = OLD.last_heartbeat THEN
            RETURN NEW;
        END IF;
        IF NOT v_held THEN
            -- It ran out: no row is found to be renewed.
            RETURN NULL;
        END IF;
        NEW.last_heartbeat := v_now;
        RETURN NEW;
    END IF;
    -- A change of hands.
    IF v_held AND NOT (v_own AND NEW.leader_id = OLD.leader_id) THEN
        RAISE EXCEPTION 'the lease of % is held by % under term %', OLD.service_name,
            OLD.leader_id, OLD.term USING ERRCODE = 'TN003';
    END IF;
    IF NEW.leader_id = '' OR NEW.term <= OLD.term OR NOT v_own AND NEW.term <> OLD.term + 1 THEN
        RAISE EXCEPTION 'the term of % is % and can''t become %', OLD.service_name, OLD.term,
            NEW.term USING ERRCODE = 'TN003';
    END IF;
    -- An update alone would pass under a fence; this lock does not (P1).
    PERFORM FROM @schema@.@table@ WHERE service_name = OLD.service_name FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'a fenced transaction of term % of % is not over', OLD.term,
            OLD.service_name USING ERRCODE = 'lock_not_available';
    END IF;
    IF NOT v_own THEN
        SELECT l.* INTO v_other FROM @schema@.tenure_leave_advisory(OLD.service_name) AS l;
        PERFORM @schema@.tenure_refuse_other(OLD.service_name, v_other.state, v_other.holder);
        NEW.tenure_base := @schema@.tenure_base_for(NEW.term, OLD.tenure_base,
            greatest(@schema@.tenure_least(), v_other.term + 1));
        NEW.last_heartbeat := v_now;
        NEW.tenure_ttl_us := NULL;
        NEW.tenure_seq := 0;
        NEW.tenure_asked := false;
        NEW.tenure_since := v_now;
    END IF;
    RETURN NEW;
END
$tenure$;

-- One that was disabled or changed is made anew.
DO $tenure$
DECLARE
    v_trigger name;
BEGIN
    FOR v_trigger IN
        SELECT t.tgname FROM pg_catalog.pg_trigger AS t
        JOIN (VALUES ('tenure_rules', 19), ('tenure_rules_rows', 15), ('tenure_rules_all', 34))
            AS want (name, type) ON want.name = t.tgname
        WHERE t.tgrelid = @table_literal@::regclass AND (t.tgtype <> want.type
            OR t.tgenabled NOT IN ('O', 'A')
            OR t.tgfoid <> (quote_ident(@schema_literal@) || '.tenure_rules')::regproc)
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', v_trigger, @table_literal@);
    END LOOP;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger
        WHERE tgrelid = @table_literal@::regclass AND tgname = 'tenure_rules') THEN
        -- Renewals of our own, by far the most writes, pass without a call.
        CREATE TRIGGER tenure_rules BEFORE UPDATE ON @schema@.@table@
            FOR EACH ROW WHEN (
                current_setting('tenure.own', true) IS DISTINCT FROM 'on'
                OR (OLD.service_name, OLD.leader_id, OLD.term)
                    IS DISTINCT FROM (NEW.service_name, NEW.leader_id, NEW.term)
            ) EXECUTE FUNCTION @schema@.tenure_rules();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger
        WHERE tgrelid = @table_literal@::regclass AND tgname = 'tenure_rules_rows') THEN
        CREATE TRIGGER tenure_rules_rows BEFORE INSERT OR DELETE ON @schema@.@table@
            FOR EACH ROW EXECUTE FUNCTION @schema@.tenure_rules();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger
        WHERE tgrelid = @table_literal@::regclass AND tgname = 'tenure_rules_all') THEN
        CREATE TRIGGER tenure_rules_all BEFORE TRUNCATE ON @schema@.@table@
            FOR EACH STATEMENT EXECUTE FUNCTION @schema@.tenure_rules();
    END IF;
END
$tenure$;

-- Commits of grants must reach the disk (P2). A stricter setting is kept.
CREATE OR REPLACE FUNCTION @schema@.tenure_durably() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $tenure$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$tenure$;
