
SELECT jobq_internal._identify_tables();

-- Leaves PUBLIC one right: EXECUTE on jobq.version(), with the USAGE on the
-- schemas that it needs.
REVOKE ALL ON SCHEMA jobq, jobq_internal FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA jobq FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA jobq FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA jobq, jobq_internal FROM PUBLIC;
GRANT USAGE ON SCHEMA jobq, jobq_internal TO PUBLIC;
GRANT EXECUTE ON FUNCTION jobq.version() TO PUBLIC;

-- src/lifecycle/launcher.c: when this transaction commits, the dispatcher of
-- this database starts.
CREATE FUNCTION jobq_internal._installed() RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_installed';
REVOKE ALL ON FUNCTION jobq_internal._installed() FROM PUBLIC;
SELECT jobq_internal._installed();

-- Revokes also the rights that ALTER DEFAULT PRIVILEGES has added.
SELECT jobq_internal._revoke_stray_grants();
