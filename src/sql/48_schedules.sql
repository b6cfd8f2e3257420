-- Cron expressions and schedules: src/schedule/.

-- src/schedule/next_runs.c
CREATE FUNCTION jobq.next_runs(cron text, timezone text DEFAULT 'UTC', n int DEFAULT 5, since timestamptz DEFAULT now())
  RETURNS SETOF timestamptz
  LANGUAGE c STABLE PARALLEL SAFE ROWS 5 AS 'MODULE_PATHNAME', 'jobq_next_runs';

CREATE SEQUENCE jobq.schedule_id_seq AS int4;

-- One row per schedule.  The conductor (src/schedule/conductor.c) updates it at
-- each tick, so that no index may contain a column that changes there.
-- src/schedule/schedule_row.h numbers the columns: append, never reorder.
CREATE TABLE jobq.schedules (
  name                  text        NOT NULL,
  cron                  text        NOT NULL,
  job_type              text        NOT NULL,
  payload               jsonb       NOT NULL,
  timezone              text        NOT NULL,
  starts_at             timestamptz,
  ends_at               timestamptz,
  max_runs              int4,
  catch_up              text        NOT NULL CHECK (catch_up IN ('skip', 'one', 'all')),
  catch_up_limit        int4        NOT NULL,
  overlap               text        NOT NULL CHECK (overlap IN ('skip', 'queue', 'allow', 'cancel')),
  jitter                interval    NOT NULL,
  pause_after_failures  int4,
  options               jsonb       NOT NULL,
  tenant                text,
  owner                 text        NOT NULL,
  status                text        NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'finished')),
  reason                text,                    -- of a pause
  paused_until          timestamptz,
  runs                  int8        NOT NULL DEFAULT 0,
  skipped               int8        NOT NULL DEFAULT 0,
  last_tick             timestamptz,             -- of the last job
  last_job_id           uuid,
  next_tick             timestamptz,             -- NULL: none, or not known before the last job ends ("after 90s")
  created_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
  id                    int4        NOT NULL DEFAULT nextval('jobq.schedule_id_seq') PRIMARY KEY,
  owner_oid             oid         NOT NULL,    -- 0: no role of that name existed when the row was restored
  ticks_after           timestamptz NOT NULL,    -- ticks up to this time have a job or a reason, or are gone
  waiting_tick          timestamptz,             -- overlap = queue: its job starts when the last one has ended
  failures              int4        NOT NULL DEFAULT 0,      -- dead letters in a row
  ended_job_id          uuid,                    -- the last job whose end is counted in failures
  paused_by_jobq        boolean     NOT NULL DEFAULT false,
  home_id               int4        NOT NULL     -- as in jobq.queue: ticks of another database's schedule are not ours
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX schedules_name ON jobq.schedules (tenant, name) NULLS NOT DISTINCT;

SELECT pg_catalog.pg_extension_config_dump('jobq.schedule_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.schedules', '');

-- Names the changed schedules to the conductor at commit.
CREATE FUNCTION jobq_internal._schedules_changed() RETURNS trigger
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_schedules_trigger';
CREATE TRIGGER schedules_changed AFTER INSERT OR UPDATE OR DELETE ON jobq.schedules
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._schedules_changed();
ALTER TABLE jobq.schedules ENABLE ALWAYS TRIGGER schedules_changed;
CREATE TRIGGER schedules_truncated AFTER TRUNCATE ON jobq.schedules
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._schedules_changed();
ALTER TABLE jobq.schedules ENABLE ALWAYS TRIGGER schedules_truncated;

-- src/schedule/schedule_sql.c
-- Checks a definition, and the right of its owner to enqueue its jobs.  Returns
-- the first tick after ticks_after; NULL: there is none up to ends_at.
CREATE FUNCTION jobq_internal._check_schedule(s jobq.schedules) RETURNS timestamptz
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_check_schedule';
-- Returns the ticks from one time to another, at most max_ticks.
CREATE FUNCTION jobq_internal._ticks_of(s jobq.schedules, since timestamptz, until timestamptz, max_ticks int)
  RETURNS timestamptz[]
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_ticks_of';
-- Enqueues a job for each tick, as the owner, whatever the policies say.
-- Returns their ids.
CREATE FUNCTION jobq_internal._run_ticks(schedule_id int, ticks timestamptz[]) RETURNS uuid[]
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_run_ticks';

CREATE FUNCTION jobq_internal._find_schedule_owner() RETURNS trigger
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NEW.home_id IS NULL THEN
    NEW.home_id := jobq_internal._home_id();
  END IF;
  IF TG_OP = 'INSERT' OR (NEW.owner <> OLD.owner AND NEW.owner_oid IS NOT DISTINCT FROM OLD.owner_oid) THEN
    NEW.owner_oid := jobq_internal._find_role(NEW.owner);
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER find_owner BEFORE INSERT OR UPDATE ON jobq.schedules
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._find_schedule_owner();
ALTER TABLE jobq.schedules ENABLE ALWAYS TRIGGER find_owner;
