-- Pressure signals and their effects on job types:
-- src/pressure/pressure_rules.c, src/pressure/pressure_signals.c.

-- Signals that jobq.set_signal or a condition sets.  The built-in ones
-- (jobq_internal._is_builtin_signal) have no row.
CREATE SEQUENCE jobq.signal_id_seq AS int4;
CREATE TABLE jobq.signals (
  id            int4        NOT NULL DEFAULT nextval('jobq.signal_id_seq') PRIMARY KEY,
  name          text        NOT NULL UNIQUE,
  active        boolean     NOT NULL,
  active_until  timestamptz,             -- NULL: until it is cleared
  condition     text,                    -- NULL: jobq.set_signal decides
  definer       text,                    -- the condition runs as this role,
  search_path   text,                    -- with the search_path of its creator
  every         interval,
  problem       text,                    -- why the last evaluation gave no value
  changed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  definer_oid   oid,                     -- definer decides in restored dumps only
  CHECK ((condition IS NULL) = (definer IS NULL) AND (condition IS NULL) = (every IS NULL))
);

CREATE TABLE jobq.pressure_rules (
  type_id       int4        NOT NULL,    -- 0: every type
  signal        text        NOT NULL,
  priority_adj  int4        NOT NULL,
  block         boolean     NOT NULL,
  max_weight    int4,
  PRIMARY KEY (type_id, signal)
);

SELECT pg_catalog.pg_extension_config_dump('jobq.signal_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.signals', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.pressure_rules', '');

-- Makes the dispatcher read both tables again at commit.
CREATE FUNCTION jobq_internal._signals_changed() RETURNS trigger
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_signals_trigger';
CREATE TRIGGER signals_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.signals
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._signals_changed();
ALTER TABLE jobq.signals ENABLE ALWAYS TRIGGER signals_changed;
CREATE TRIGGER signals_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.pressure_rules
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._signals_changed();
ALTER TABLE jobq.pressure_rules ENABLE ALWAYS TRIGGER signals_changed;

CREATE FUNCTION jobq_internal._find_definer() RETURNS trigger
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NEW.definer IS NULL THEN
    NEW.definer_oid := NULL;
  ELSIF TG_OP = 'INSERT' OR (NEW.definer IS DISTINCT FROM OLD.definer
                             AND NEW.definer_oid IS NOT DISTINCT FROM OLD.definer_oid) THEN
    NEW.definer_oid := jobq_internal._find_role(NEW.definer);
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER find_definer BEFORE INSERT OR UPDATE ON jobq.signals
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._find_definer();
ALTER TABLE jobq.signals ENABLE ALWAYS TRIGGER find_definer;

-- Returns the built-in signals that are active.
CREATE FUNCTION jobq_internal._builtin_signals() RETURNS SETOF text
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_builtin_signals';
CREATE FUNCTION jobq_internal._is_builtin_signal(name text) RETURNS boolean
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_is_builtin_signal';
CREATE FUNCTION jobq_internal._callers_search_path() RETURNS text
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_callers_search_path';

CREATE FUNCTION jobq_internal._check_signal_name(name text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._check_name('signal', name);
  IF jobq_internal._is_builtin_signal(name) THEN
    PERFORM jobq_internal._bad('22023',
      format('argument "name": "%s" is a signal that jobq sets itself', name));
  END IF;
END $$;

CREATE FUNCTION jobq.set_signal(name text, active boolean, ttl interval DEFAULT NULL) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._set_signal(caller oid, name text, active boolean, ttl interval) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  PERFORM jobq_internal._check_signal_name(_set_signal.name),
          jobq_internal._check_not_null('active', _set_signal.active IS NOT NULL),
          jobq_internal._check_interval('ttl', ttl, false);
  INSERT INTO jobq.signals (name, active, active_until)
  VALUES (_set_signal.name, _set_signal.active, CASE WHEN _set_signal.active THEN clock_timestamp() + ttl END)
  ON CONFLICT (name) DO UPDATE
     SET active = excluded.active, active_until = excluded.active_until, changed_at = excluded.changed_at;
END $$;

-- Stores a signal with a condition.  The condition has been parsed as the
-- caller, in the caller's search_path, before.  A signal that is replaced gets
-- a new id: the dispatcher evaluates the new condition at once, and a result
-- of the former one finds no row.
CREATE FUNCTION jobq.create_signal(name text, condition text, every interval DEFAULT '10s', on_conflict text DEFAULT 'error')
  RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_create_signal';
CREATE FUNCTION jobq_internal._create_signal(caller oid, name text, condition text, every interval, on_conflict text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  PERFORM jobq_internal._check_signal_name(_create_signal.name),
          jobq_internal._check_not_null('every', _create_signal.every IS NOT NULL),
          jobq_internal._check_interval('every', _create_signal.every, false),
          jobq_internal._check_on_conflict(on_conflict);
  IF on_conflict = 'ignore' AND EXISTS (SELECT FROM jobq.signals s WHERE s.name = _create_signal.name) THEN
    RETURN;
  END IF;
  INSERT INTO jobq.signals AS s (name, active, condition, definer, search_path, every)
  VALUES (_create_signal.name, false, _create_signal.condition, pg_get_userbyid(caller), jobq_internal._callers_search_path(),
          _create_signal.every)
  ON CONFLICT (name) DO UPDATE
     SET id = excluded.id, condition = excluded.condition, definer = excluded.definer, definer_oid = excluded.definer_oid,
         search_path = excluded.search_path, every = excluded.every, problem = NULL
   WHERE on_conflict = 'replace';
  IF NOT FOUND AND on_conflict = 'error' THEN
    PERFORM jobq_internal._bad('42710', format('signal "%s" exists already', _create_signal.name),
      'on_conflict => ''replace'' changes it and keeps its rules, ''ignore'' leaves it as it is.');
  ELSIF NOT FOUND THEN
    RETURN;
  END IF;
  -- the trigger has found the definer by name, which another role may have got
  -- a moment ago
  UPDATE jobq.signals s SET definer_oid = caller WHERE s.name = _create_signal.name AND s.definer_oid <> caller;
END $$;

CREATE FUNCTION jobq.drop_signal(name text, force boolean DEFAULT false) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._drop_signal(caller oid, name text, force boolean) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  users text;
BEGIN
  PERFORM jobq_internal._check_signal_name(name), jobq_internal._check_not_null('force', force IS NOT NULL);
  -- set_pressure_rule() locks the row, so no rule is new from here on
  PERFORM FROM jobq.signals s WHERE s.name = _drop_signal.name FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM jobq_internal._bad_name('signal', name);
  END IF;
  PERFORM jobq_internal._check_snapshot('jobq.pressure_rules');
  IF NOT force THEN
    SELECT string_agg(CASE WHEN r.type_id = 0 THEN 'every job type' ELSE format('job type "%s"', t.name) END,
                      ', ' ORDER BY t.name) INTO users
      FROM jobq.pressure_rules r LEFT JOIN jobq.job_types t ON t.id = r.type_id WHERE r.signal = _drop_signal.name;
    IF users IS NOT NULL THEN
      PERFORM jobq_internal._bad('55006',
        format('signal "%s" is in use by the pressure rules of %s', name, users),
        'force => true drops them, too.');
    END IF;
  END IF;
  DELETE FROM jobq.pressure_rules r WHERE r.signal = _drop_signal.name;
  DELETE FROM jobq.signals s WHERE s.name = _drop_signal.name;
END $$;

CREATE FUNCTION jobq.set_pressure_rule(job_type text, signal text, priority_adj int DEFAULT 0, block boolean DEFAULT false,
                                       max_weight int DEFAULT NULL) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._set_pressure_rule(caller oid, job_type text, signal text, priority_adj int, block boolean,
                                        max_weight int) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  rule_type int := 0;
BEGIN
  PERFORM jobq_internal._check_not_null('signal', signal IS NOT NULL),
          jobq_internal._check_not_null('priority_adj', priority_adj IS NOT NULL),
          jobq_internal._check_not_null('block', block IS NOT NULL),
          jobq_internal._check_number('priority_adj', priority_adj, -1000, 1000),
          jobq_internal._check_number('max_weight', max_weight, 1, 1000000);
  IF job_type IS NOT NULL THEN
    rule_type := (jobq_internal._pausable_type(caller, job_type)).id;
    IF max_weight IS NOT NULL THEN
      PERFORM jobq_internal._bad('22023',
        format('argument "max_weight": %s is given for job type "%s"', max_weight, job_type),
        'It is the budget of all types together: job_type => NULL.');
    END IF;
  END IF;
  -- a shared lock, so that the signal is not dropped meanwhile
  PERFORM FROM jobq.signals s WHERE s.name = signal FOR KEY SHARE;
  IF NOT FOUND AND NOT jobq_internal._is_builtin_signal(signal) THEN
    PERFORM jobq_internal._bad_name('signal', signal);
  ELSIF priority_adj = 0 AND NOT block AND max_weight IS NULL THEN
    DELETE FROM jobq.pressure_rules r WHERE r.type_id = rule_type AND r.signal = signal;
  ELSE
    INSERT INTO jobq.pressure_rules AS r VALUES (rule_type, signal, priority_adj, block, max_weight)
    ON CONFLICT ON CONSTRAINT pressure_rules_pkey DO UPDATE
       SET priority_adj = excluded.priority_adj, block = excluded.block, max_weight = excluded.max_weight;
  END IF;
END $$;

-- The route update_rule of jobq-web (src/web/seeds.c): changes the rule of a job
-- type, and records that as set_pressure_rule.  NULL leaves a column as it is.
CREATE FUNCTION jobq_internal._alter_pressure_rule(job_type text, signal text, priority_adj int, block boolean) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal.__alter_pressure_rule(caller oid, job_type text, signal text, priority_adj int, block boolean) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  -- locks the row of the type: the rule is read after other changes of it
  rule_type int := (jobq_internal._pausable_type(caller, job_type)).id;
  args jsonb := jsonb_build_object('job_type', job_type, 'signal', signal);
  before jsonb := jobq_internal._audit_before(caller, 'set_pressure_rule', args);
  rule jobq.pressure_rules;
BEGIN
  SELECT * INTO rule FROM jobq.pressure_rules r WHERE r.type_id = rule_type AND r.signal = signal;
  PERFORM jobq_internal._set_pressure_rule(caller, job_type, signal, coalesce(priority_adj, rule.priority_adj, 0),
                                           coalesce(block, rule.block, false), NULL),
          jobq_internal._audit(caller, 'set_pressure_rule', args, before, '{}');
END $$;

-- Stores the result of src/pressure/signal_condition.c: value, or NULL
-- and the problem.  It writes changes only.
CREATE FUNCTION jobq_internal._signal_checked(signal_id int, value boolean, problem text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  s jobq.signals;
BEGIN
  SELECT * INTO s FROM jobq.signals WHERE id = signal_id AND condition IS NOT NULL FOR UPDATE;
  IF NOT FOUND OR (coalesce(_signal_checked.value, s.active) = s.active AND s.active_until IS NULL
                   AND s.problem IS NOT DISTINCT FROM _signal_checked.problem) THEN
    RETURN;
  END IF;
  UPDATE jobq.signals
     SET active = coalesce(_signal_checked.value, s.active), problem = _signal_checked.problem,
         active_until = CASE WHEN _signal_checked.value IS NULL THEN s.active_until END,
         changed_at = CASE WHEN _signal_checked.value <> s.active THEN clock_timestamp() ELSE s.changed_at END
   WHERE id = signal_id;
  IF _signal_checked.problem IS DISTINCT FROM s.problem AND _signal_checked.problem IS NOT NULL THEN
    INSERT INTO jobq.events (type, source, level, message, data)
    VALUES ('signal_failed', 'dispatcher', 'warning', format('the condition of signal "%s": %s', s.name, _signal_checked.problem),
            jsonb_build_object('signal', s.name));
  END IF;
END $$;
