DO $tenure_migration$
DECLARE
    v_until timestamptz := clock_timestamp() + interval '60 seconds';
    v_lock_timeout text := current_setting('lock_timeout');
    v_version integer;
BEGIN
    PERFORM pg_advisory_xact_lock(@key@);
    IF to_regclass(quote_ident(@schema_literal@) || '.tenure_migrations') IS NOT NULL THEN
        SELECT max(version) INTO v_version FROM @schema@.tenure_migrations;
        IF v_version > @latest@ THEN
            RAISE NOTICE 'a later version of tenure has been here; nothing was changed';
            RETURN;
        END IF;
    END IF;
    LOOP
        BEGIN
            PERFORM set_config('lock_timeout', '200ms', true);
EXECUTE $tenure_first$
@first@$tenure_first$;
@steps@
EXECUTE $tenure_last$
@last@$tenure_last$;
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            -- Everything is undone, and nobody waits for us meanwhile.
            IF clock_timestamp() > v_until THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    PERFORM set_config('lock_timeout', v_lock_timeout, true);
END
$tenure_migration$;
