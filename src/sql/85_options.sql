-- What the options of a job type may hold, from src/registry/option_keys.c;
-- jobq_internal._check_options refuses everything else.
-- kind: exec (external programs), sql (SQL handlers), pull (worked by other processes), all.
CREATE FUNCTION jobq_internal._option_keys(OUT key text, OUT kind text, OUT type text, OUT default_value text, OUT meaning text)
  RETURNS SETOF record LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_option_keys';
CREATE VIEW jobq.option_keys AS
SELECT k.key, k.kind, k.type, k.default_value, k.meaning FROM jobq_internal._option_keys() k;
