-- Every text that the helper's validator accepts must be a jsonb.  Input:
-- json_accepted's lines, on standard input.
\set ON_ERROR_STOP on
CREATE TEMP TABLE accepted (hex text);
\copy accepted FROM pstdin
DO $$
DECLARE
	r record;
	refused int := 0;
BEGIN
	FOR r IN SELECT hex FROM accepted LOOP
		BEGIN
			PERFORM convert_from(decode(r.hex, 'hex'), 'UTF8')::jsonb;
		EXCEPTION WHEN OTHERS THEN
			refused := refused + 1;
			RAISE WARNING '% refused: %', r.hex, SQLERRM;
		END;
	END LOOP;
	IF refused > 0 THEN
		RAISE EXCEPTION 'jsonb refused % texts that the helper accepts', refused;
	END IF;
	RAISE NOTICE 'jsonb took all % texts', (SELECT count(*) FROM accepted);
END $$;
