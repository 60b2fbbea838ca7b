-- Leads two elections as one candidate, gives them back, and undoes it: an older table may have
-- constraints that refuse one of these, and then nobody could lead.
DO $tenure$
DECLARE
    v_names text[] := ARRAY['tenure probe 1 ', 'tenure probe 2 '];
    v_verb text;
    v_constraint text;
BEGIN
    v_names := ARRAY(SELECT n || pg_backend_pid() FROM unnest(v_names) AS n);
    FOREACH v_verb IN ARRAY ARRAY['acquire', 'renew', 'release'] LOOP
        PERFORM FROM @schema@.tenure_apply(ARRAY[v_verb, v_verb], v_names,
            ARRAY['tenure', 'tenure'], ARRAY[1, 1], ARRAY[NULL, NULL]::bigint[],
            ARRAY[NULL, NULL]::bigint[], ARRAY[1000000, 1000000], ARRAY[NULL, NULL]::text[]);
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'TN005', MESSAGE = 'undone';
EXCEPTION
    WHEN SQLSTATE 'TN005' THEN
        NULL;
    WHEN integrity_constraint_violation THEN
        GET STACKED DIAGNOSTICS v_constraint = CONSTRAINT_NAME;
        RAISE EXCEPTION 'the table % refuses what tenure writes there: %; drop % or change it',
            @table_literal@, SQLERRM,
            coalesce('the constraint ' || nullif(v_constraint, ''), 'that constraint')
            USING ERRCODE = 'TN002';
END
$tenure$;
