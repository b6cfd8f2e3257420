-- ALTER EXTENSION UPDATE from the former release makes what CREATE EXTENSION makes.  A difference
-- that is listed here belongs into src/sql/upgrade (README.md there).
CREATE DATABASE jobq_upgraded;
\c jobq_upgraded
CREATE EXTENSION jobq VERSION '0.1.0';
ALTER EXTENSION jobq UPDATE;
\ir ../lib/catalog.sql
\set upgraded :catalog
\c pgtap
\ir ../lib/catalog.sql
BEGIN;
SELECT plan(3);
SELECT cmp_ok(json_array_length(:'catalog'), '>', 500, 'the catalogs are described');
SELECT is_empty(format('SELECT json_array_elements_text(%L) EXCEPT ALL SELECT json_array_elements_text(%L)', :'catalog', :'upgraded'),
  'nothing that a fresh install has is missing after the update');
SELECT is_empty(format('SELECT json_array_elements_text(%L) EXCEPT ALL SELECT json_array_elements_text(%L)', :'upgraded', :'catalog'),
  'and nothing is there that a fresh install has not');
SELECT * FROM finish();
ROLLBACK;
\c pgtap
DROP DATABASE jobq_upgraded WITH (FORCE);
