-- The functions of schedules: arguments, identity, rights, quotas.  Ticks by themselves: test/tap.
BEGIN;
SET LOCAL client_min_messages = error;
SET LOCAL timezone = 'UTC';
SELECT * FROM no_plan();
CREATE SCHEMA plans;
GRANT USAGE ON SCHEMA plans TO PUBLIC;
CREATE FUNCTION plans.work(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
CREATE FUNCTION plans.admits(tenant text) RETURNS boolean LANGUAGE sql RETURN true;
SELECT jobq.create_job_type(t, 'plans.work(jsonb)') FROM unnest('{plan mail,plan report,plan other}'::text[]) t;
SELECT jobq.pause_job_type(t) FROM unnest('{plan mail,plan report,plan other}'::text[]) t;
SELECT jobq.create_job_type('plan tool', command => ARRAY['cat', '{file}']);

-- Returns the error of a statement, run as a role; undoes one without error.
CREATE FUNCTION plans.error(statement text, role name DEFAULT current_user) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  hint text;
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  EXECUTE statement;
  RAISE SQLSTATE 'UNDO0';
EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
  RETURN 'none';
WHEN OTHERS THEN
  RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
-- Runs a statement as a role.
CREATE FUNCTION plans.as_role(role name, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  EXECUTE statement INTO result;
  RESET ROLE;
  RETURN result;
END $$;
CREATE FUNCTION plans.row(name text, tenant text DEFAULT NULL) RETURNS jobq.schedules LANGUAGE sql AS $$
  SELECT s FROM jobq.schedules s WHERE s.name = $1 AND s.tenant IS NOT DISTINCT FROM $2
$$;

-- ---------- schedule ----------
SELECT jobq.schedule('p1', '0 3 * * *', 'plan mail');
SELECT results_eq($$SELECT cron, job_type, payload, timezone, starts_at, ends_at, max_runs, catch_up, catch_up_limit, overlap, jitter, pause_after_failures,
                           options, tenant, owner = current_user, status, reason, paused_until, runs, skipped, last_tick, last_job_id FROM jobq.schedules WHERE name = 'p1'$$,
  $$VALUES ('0 3 * * *', 'plan mail', '{}'::jsonb, 'UTC', NULL::timestamptz, NULL::timestamptz, NULL::int, 'one', 100, 'skip', '0'::interval, NULL::int,
            '{}'::jsonb, NULL::text, true, 'active', NULL::text, NULL::timestamptz, 0::bigint, 0::bigint, NULL::timestamptz, NULL::uuid)$$, 'defaults');
SELECT is(next_tick, (SELECT t FROM jobq.next_runs('0 3 * * *', n => 1, since => clock_timestamp()) t), 'the next tick') FROM plans.row('p1');
SELECT jobq.schedule('p2', '30 2 * * *', 'plan report', '{"at": {"$": "$.tick"}, "list": [1, {"$": "$.last_tick"}]}', 'Europe/Berlin',
  starts_at => '2100-03-28', ends_at => '2100-03-31', max_runs => 5, catch_up => 'all', catch_up_limit => 7, overlap => 'queue', jitter => '1 day',
  pause_after_failures => 3, options => '{"priority": 5, "metadata": {"a": 1}, "timeout": null}', tenant => 'acme/eu');
SELECT is(to_jsonb(s) - '{created_at,updated_at,ticks_after,id,owner_oid,home_id,owner,last_tick,last_job_id,reason,paused_until,waiting_tick,ended_job_id}'::text[],
  '{"name": "p2", "cron": "30 2 * * *", "job_type": "plan report", "payload": {"at": {"$": "$.tick"}, "list": [1, {"$": "$.last_tick"}]}, "timezone": "Europe/Berlin",
    "starts_at": "2100-03-28T00:00:00+00:00", "ends_at": "2100-03-31T00:00:00+00:00", "max_runs": 5, "catch_up": "all", "catch_up_limit": 7, "overlap": "queue",
    "jitter": "1 day", "pause_after_failures": 3, "options": {"priority": 5, "metadata": {"a": 1}}, "tenant": "acme/eu", "status": "active", "runs": 0, "skipped": 0,
    "next_tick": "2100-03-28T01:00:00+00:00", "failures": 0, "paused_by_jobq": false}', 'all arguments') FROM plans.row('p2', 'acme/eu') s;
SELECT jobq.schedule('a1', 'after 90s', 'plan mail');
SELECT is(next_tick - created_at, '90s', '"after" begins an interval after its creation') FROM plans.row('a1');
SELECT jobq.schedule('a2', 'AFTER 2 hours', 'plan mail', starts_at => '2100-01-01');
SELECT is(next_tick, '2100-01-01', 'or at starts_at') FROM plans.row('a2');
SELECT jobq.schedule('e1', 'every 90s', 'plan mail', starts_at => '2100-01-01 00:00:07');
SELECT is(next_tick, '2100-01-01 00:00:07', '"every" begins at starts_at, which is inclusive') FROM plans.row('e1');
SELECT set_config('jobq.tenant', 'beta', true);
SELECT jobq.schedule('p1', '@hourly', 'plan mail');
SELECT is(count(*)::int, 2, 'names are unique per tenant; the default is jobq.tenant') FROM jobq.schedules WHERE name = 'p1' AND (tenant IS NULL OR tenant = 'beta');
SELECT is(jobq.unschedule('p1'), true, 'also of unschedule');
SELECT is(count(*)::int, 1, 'which drops that of the tenant') FROM jobq.schedules WHERE name = 'p1';
SELECT set_config('jobq.tenant', '', true);

-- ---------- on_conflict ----------
SELECT is(plans.error($$SELECT jobq.schedule('p1', '@daily', 'plan mail')$$), '42710: schedule "p1" exists already', 'error is the default');
CREATE TEMP TABLE before AS SELECT s.*, s.ctid AS place FROM jobq.schedules s WHERE name = 'p1';
SELECT jobq.schedule('p1', '@hourly', 'plan report', on_conflict => 'ignore');
SELECT jobq.schedule('p1', '0 3 * * *', 'plan mail', options => '{"timeout": null}', jitter => '0 min', on_conflict => 'replace');
SELECT is((SELECT ctid FROM jobq.schedules WHERE name = 'p1'), (SELECT place FROM before), 'ignore, and replace with the same definition write nothing');
UPDATE jobq.schedules SET runs = 7, last_tick = '2026-01-01', failures = 2, ticks_after = '2026-01-02' WHERE name = 'p1';
SELECT jobq.schedule('p1', '0 3 * * *', 'plan mail', '{"new": 1}', on_conflict => 'replace');
SELECT is((runs, last_tick, failures, ticks_after, payload)::text, (7, '2026-01-01'::timestamptz, 2, '2026-01-02'::timestamptz, '{"new": 1}'::jsonb)::text,
  'replace keeps runs, last_tick and ticks that are due') FROM plans.row('p1');
SELECT is(next_tick, '2026-01-02 03:00', 'next_tick is the first that is due') FROM plans.row('p1');
SELECT jobq.schedule('p1', '0 4 * * *', 'plan mail', '{"new": 1}', pause_after_failures => 9, on_conflict => 'replace');
SELECT ok(ticks_after >= now() AND next_tick > now() AND extract(hour FROM next_tick) = 4 AND failures = 0, 'with another expression ticks begin now') FROM plans.row('p1');
SELECT jobq.pause_schedule('p1', 'repairs', '1 hour');
SELECT jobq.schedule('p1', '0 5 * * *', 'plan mail', on_conflict => 'replace');
SELECT is((status, reason, next_tick)::text, ('paused', 'repairs', NULL::timestamptz)::text, 'a paused schedule stays paused') FROM plans.row('p1');

SELECT jobq.alter_schedule('p1', max_runs => 7);
SELECT is((status, reason, next_tick)::text, ('paused', 'repairs', NULL::timestamptz)::text, 'also without further runs') FROM plans.row('p1');
SELECT jobq.resume_schedule('p1');
SELECT is((status, reason, next_tick)::text, ('finished', NULL::text, NULL::timestamptz)::text, 'and is finished when it is resumed') FROM plans.row('p1');
SELECT jobq.alter_schedule('p1', reset => '{max_runs}'), jobq.pause_schedule('p1', 'repairs', '1 hour');

-- ---------- finished ----------
UPDATE jobq.schedules SET status = 'finished', runs = 5, next_tick = NULL, ticks_after = '2026-01-01' WHERE name = 'p2';
SELECT jobq.alter_schedule('p2', payload => '{}', tenant => 'acme/eu');
SELECT is(status, 'finished', 'a finished schedule without further runs stays finished') FROM plans.row('p2', 'acme/eu');
SELECT jobq.alter_schedule('p2', max_runs => 6, tenant => 'acme/eu');
SELECT ok(status = 'active' AND next_tick = '2100-03-28 01:00' AND ticks_after >= now(), 'with more it is active from now on') FROM plans.row('p2', 'acme/eu');
SELECT jobq.alter_schedule('p2', max_runs => 3, tenant => 'acme/eu');
SELECT ok(status = 'finished' AND next_tick IS NULL, 'and with less it is finished') FROM plans.row('p2', 'acme/eu');
SELECT jobq.schedule('e2', '@daily', 'plan mail', ends_at => '2100-01-01');
UPDATE jobq.schedules SET ends_at = '2026-01-01', status = 'finished', next_tick = NULL WHERE name = 'e2';
SELECT jobq.schedule('e2', '@daily', 'plan mail', ends_at => '2026-01-01', on_conflict => 'replace');
SELECT is(status, 'finished', 'the same definition after its end is no error') FROM plans.row('e2');
SELECT jobq.schedule('e2', '@daily', 'plan mail', '{"b": 1}', ends_at => '2026-01-01', on_conflict => 'replace');
SELECT is(status, 'finished', 'nor is another payload') FROM plans.row('e2');
SELECT is(plans.error($$SELECT jobq.schedule('e2', '@daily', 'plan mail', ends_at => '2026-01-02', on_conflict => 'replace')$$),
  '22023: argument "ends_at": "2026-01-02 00:00:00+00" has no tick before it', 'another end without a tick is');
SELECT jobq.alter_schedule('e2', ends_at => '2101-01-01');
SELECT ok(status = 'active' AND next_tick > now(), 'a later end makes it active again') FROM plans.row('e2');

-- ---------- alter ----------
SELECT jobq.alter_schedule('p2', '0 6 * * *', 'plan mail', '{"x": 1}', 'Asia/Tokyo', '2100-01-01', '2100-02-01', 50, 'skip', 9, 'cancel', '5s', 4, '{"priority": null, "timeout": "1min"}', 'acme/eu');
SELECT results_eq($$SELECT cron, job_type, payload, timezone, starts_at, ends_at, max_runs, catch_up, catch_up_limit, overlap, jitter, pause_after_failures, options, status FROM plans.row('p2', 'acme/eu')$$,
  $$VALUES ('0 6 * * *', 'plan mail', '{"x": 1}'::jsonb, 'Asia/Tokyo', '2100-01-01'::timestamptz, '2100-02-01'::timestamptz, 50, 'skip', 9, 'cancel', '5s'::interval, 4,
            '{"timeout": "1min", "metadata": {"a": 1}}'::jsonb, 'active')$$, 'each argument; options are merged');
CREATE TEMP TABLE altered AS SELECT s.*, s.ctid AS place FROM jobq.schedules s WHERE name = 'p2';
SELECT jobq.alter_schedule('p2', tenant => 'acme/eu'), jobq.alter_schedule('p2', tenant => 'acme/eu', reset => '{}');
SELECT is((SELECT ctid FROM jobq.schedules WHERE name = 'p2'), (SELECT place FROM altered), 'no argument, no change');
SELECT jobq.alter_schedule('p2', tenant => 'acme/eu', reset => '{payload,timezone,starts_at,ends_at,max_runs,catch_up,catch_up_limit,overlap,jitter,pause_after_failures,options}');
SELECT results_eq($$SELECT cron, job_type, payload, timezone, starts_at, ends_at, max_runs, catch_up, catch_up_limit, overlap, jitter, pause_after_failures, options FROM plans.row('p2', 'acme/eu')$$,
  $$VALUES ('0 6 * * *', 'plan mail', '{}'::jsonb, 'UTC', NULL::timestamptz, NULL::timestamptz, NULL::int, 'one', 100, 'skip', '0'::interval, NULL::int, '{}'::jsonb)$$, 'reset');
UPDATE jobq.schedules SET next_tick = NULL WHERE name = 'a1';
SELECT jobq.alter_schedule('a1', overlap => 'allow');
SELECT is(next_tick, NULL, '"after": next_tick is not changed while the last job lives') FROM plans.row('a1');
SELECT jobq.alter_schedule('a1', 'after 5 min');
SELECT ok(next_tick > now() + '4 min', 'another interval begins now') FROM plans.row('a1');
UPDATE jobq.schedules SET last_job_id = jobq.enqueue('plan mail') WHERE name = 'a1';
SELECT jobq.alter_schedule('a1', 'after 6 min');
SELECT is(next_tick, NULL, 'or at the end of a live job') FROM plans.row('a1');

-- ---------- pause, resume ----------
UPDATE jobq.schedules SET ticks_after = '2026-01-01', failures = 3, waiting_tick = '2026-01-01' WHERE name IN ('p1', 'p2', 'e1');
SELECT jobq.resume_schedule('p2', 'acme/eu');
SELECT is(ticks_after, '2026-01-01', 'resume of an active schedule changes nothing') FROM plans.row('p2', 'acme/eu');
SELECT jobq.resume_schedule('p1');
SELECT ok(status = 'active' AND reason IS NULL AND paused_until IS NULL AND failures = 0 AND waiting_tick IS NULL AND ticks_after >= now() AND next_tick > now(),
  'resume: ticks of the pause are gone') FROM plans.row('p1');
SELECT jobq.pause_schedule(NULL, 'all');
SELECT is_empty($$SELECT name FROM jobq.schedules WHERE status <> 'paused' OR reason <> 'all' OR paused_until IS NOT NULL OR next_tick IS NOT NULL$$, 'pause all');
SELECT jobq.resume_schedule(NULL, 'acme/eu');
SELECT set_eq($$SELECT name FROM jobq.schedules WHERE status = 'active'$$, ARRAY['p2'], 'resume those of a tenant');
SELECT jobq.pause_schedule(NULL, duration => '1 hour', tenant => '');
SELECT set_eq($$SELECT name FROM jobq.schedules WHERE status = 'active' OR paused_until IS NULL$$, ARRAY['p2'], 'pause those without one');
SELECT is(plans.error($$SELECT jobq.drop_job_type('plan report', force => true), jobq.schedule('p3', '@daily', 'plan report')$$),
  '42704: job type "plan report" does not exist', 'a dropped type is unknown');
SELECT jobq.schedule('p3', '@daily', 'plan other');
SELECT jobq.pause_schedule('p3');
SELECT jobq.drop_job_type('plan other');
SELECT is(plans.error($$SELECT jobq.resume_schedule('p3')$$), '42704: schedule "p3": job type "plan other" does not exist', 'the error of a resume names the schedule');
SELECT jobq.resume_schedule(NULL);
SELECT is(string_agg(name, ' '), 'p3', 'resume all leaves out the one that cannot tick') FROM jobq.schedules WHERE status = 'paused';
SELECT jobq.schedule('late', '@daily', 'plan mail', jitter => '1 day');
SELECT jobq.unschedule('p3');
SELECT is_empty($$SELECT name FROM jobq.schedules WHERE status = 'paused'$$, 'resume all');

-- ---------- run, backfill ----------
SELECT jobq.alter_schedule('p2', payload => '{"at": {"$": "$.tick"}}', options => '{"priority": 3}', tenant => 'acme/eu');
CREATE TEMP TABLE ran AS SELECT jobq.run_schedule('p2', '2026-01-01 06:00', 'acme/eu') AS id;
SELECT is((payload, tenant, priority, metadata)::text,
  ('{"at": "2026-01-01T06:00:00+00:00"}'::jsonb, 'acme/eu', 3, '{"tick": "2026-01-01T06:00:00+00:00", "schedule": "p2", "last_tick": null}'::jsonb)::text, 'run_schedule')
  FROM jobq.jobs JOIN ran USING (id);
SELECT is((runs, last_job_id, last_tick)::text, (6, (SELECT id FROM ran), '2026-01-01'::timestamptz)::text, 'counts in runs and last_job_id only')
  FROM (SELECT runs, last_job_id, coalesce(last_tick, '2026-01-01') FROM plans.row('p2', 'acme/eu')) s(runs, last_job_id, last_tick);
SELECT jobq.pause_schedule('p2', tenant => 'acme/eu');
SELECT is(jobq.backfill_schedule('p2', '2026-01-01 06:00', '2026-01-10 06:00', 10, 'acme/eu'), 10::bigint, 'backfill, both ends inclusive, also of a paused schedule');
SELECT results_eq($$SELECT (metadata ->> 'tick')::timestamptz FROM jobq.jobs WHERE metadata ->> 'schedule' = 'p2' AND id <> (SELECT id FROM ran) ORDER BY scheduled_for, id$$,
  $$SELECT generate_series('2026-01-01 06:00'::timestamptz, '2026-01-10 06:00', '1 day')$$, 'in the order of the ticks');
SELECT is(plans.error($$SELECT jobq.backfill_schedule('p2', '2026-01-01 06:00', '2026-01-11 06:00', 10, 'acme/eu')$$),
  '54000: argument "max_runs": schedule "p2" has more than 10 ticks from "2026-01-01 06:00:00+00" to "2026-01-11 06:00:00+00"', 'too many ticks');
SELECT is(jobq.backfill_schedule('p2', '2026-01-01 07:00', '2026-01-01 08:00', tenant => 'acme/eu'), 0::bigint, 'no tick');
SELECT is(plans.error($$SELECT jobq.backfill_schedule('a1', '2026-01-01', '2026-01-02')$$), '22023: schedule "a1" has no ticks of its own: "after 6 min"', '"after"');
SELECT is(plans.error($$SELECT jobq.backfill_schedule('p2', '2026-01-02', '2026-01-01', tenant => 'acme/eu')$$),
  '22023: argument "until": "2026-01-01 00:00:00+00" is before since, "2026-01-02 00:00:00+00"', 'until before since');

-- ---------- bad input ----------
CREATE TEMP TABLE bad (call text, error text);
INSERT INTO bad VALUES
  ($$jobq.schedule('', '@daily', 'plan mail')$$, '22023: argument "name": "" is no name of a schedule'),
  ($$jobq.schedule('b', '', 'plan mail')$$, '22023: argument "cron": expression "" is empty'),
  ($$jobq.schedule('b', '0 0 30 2 *', 'plan mail')$$, '22023: argument "cron": "0 0 30 2 *" has no tick within 100 years'),
  ($$jobq.schedule('b', 'every 0s', 'plan mail')$$, '22023: argument "cron": interval "0s" %'),
  ($$jobq.schedule('b', 'every 1 month', 'plan mail')$$, '22023: argument "cron": interval "1 month" %'),
  ($$jobq.schedule('b', repeat('* ', 520), 'plan mail')$$, '54000: argument "cron": %'),
  ($$jobq.schedule('b', '@daily', 'plan mail', timezone => 'CEST')$$, '22023: argument "timezone": "CEST" is not the name of a time zone'),
  ($$jobq.schedule('b', '@daily', 'plan mail', starts_at => '2100-01-02', ends_at => '2100-01-01')$$, '22023: argument "ends_at": "2100-01-01 00:00:00+00" is before starts_at, "2100-01-02 00:00:00+00"'),
  ($$jobq.schedule('b', '@daily', 'plan mail', ends_at => now())$$, '22023: argument "ends_at": %has no tick before it'),
  ($$jobq.schedule('b', '@daily', 'plan mail', starts_at => '2100-01-01 00:01', ends_at => '2100-01-01 23:59')$$, '22023: argument "ends_at": %has no tick before it'),
  ($$jobq.schedule('b', '@daily', 'plan mail', starts_at => 'infinity')$$, '22023: argument "starts_at": "infinity" is no point in time'),
  ($$jobq.schedule('b', '@daily', 'plan mail', ends_at => 'infinity')$$, '22023: argument "ends_at": "infinity" is no point in time'),
  ($$jobq.schedule('b', '@daily', 'plan mail', jitter => '-1s')$$, '22023: argument "jitter": "-00:00:01" is outside 0..1 day'),
  ($$jobq.schedule('b', '@daily', 'plan mail', jitter => '25 hours')$$, '22023: argument "jitter": "25:00:00" is outside 0..1 day'),
  ($$jobq.schedule('b', '@daily', 'plan mail', max_runs => 0)$$, '22003: argument "max_runs": 0 is outside 1..2147483647'),
  ($$jobq.schedule('b', '@daily', 'plan mail', catch_up_limit => 10001)$$, '22003: argument "catch_up_limit": 10001 is outside 1..10000'),
  ($$jobq.schedule('b', '@daily', 'plan mail', pause_after_failures => 0)$$, '22003: argument "pause_after_failures": 0 is outside 1..2147483647'),
  ($$jobq.schedule('b', '@daily', 'plan mail', catch_up => 'none')$$, '22023: argument "catch_up": "none" is not one of "skip", "one", "all"'),
  ($$jobq.schedule('b', '@daily', 'plan mail', overlap => 'wait')$$, '22023: argument "overlap": "wait" is not one of "skip", "queue", "allow", "cancel"'),
  ($$jobq.schedule('b', '@daily', 'plan mail', on_conflict => 'update')$$, '22023: argument "on_conflict": "update" is not one of "error", "replace", "ignore"'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '{"delay": "1s"}')$$, '22023: argument "options": %"delay"%'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '{"after_rule": "done"}')$$, '22023: argument "options": key "after_rule" is none of a schedule''s'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '{"scheduled_for": "2100-01-01"}')$$, '22023: argument "options": %"scheduled_for"%'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '{"tenant": "x"}')$$, '22023: argument "options": %"tenant"%'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '{"payload": 1}')$$, '22023: argument "options": %"payload"%'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '{"job_type": "plan mail"}')$$, '22023: argument "options": %"job_type"%'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '{"after": []}')$$, '22023: argument "options": %"after"%'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '{"colour": 1}')$$, '22023: argument "options": %"colour"%'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '{"priority": 500}')$$, '22003: argument "options": key "priority": 500 is outside -100..100'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '{"on_conflict": "never"}')$$, '22023: argument "options": key "on_conflict": "never" is not one of %'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '{"unique_key": ""}')$$, '22023: argument "options": key "unique_key": "" is empty'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '{"unique_for": "1h"}')$$, '22023: argument "options": key "unique_for" needs "unique_key"'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => jsonb_build_object('unique_key', repeat('x', 5000)))$$, '54000: argument "options": key "unique_key": %'),
  ($$jobq.pause_schedule('p1', repeat('x', 8193))$$, '54000: argument "reason": 8193 bytes are more than 8192'),
  ($$jobq.pause_schedule('p1', repeat('x', 8192))$$, 'none'),
  ($$jobq.schedule('b', '@daily', 'plan mail', options => '[1]')$$, '22023: argument "options": [1] is not an object'),
  ($$jobq.schedule('b', '@daily', 'plan mail', '{"a": {"$": "$.nothing"}}')$$, '22023: argument "payload": unknown placeholder {"$": "$.nothing"}'),
  ($$jobq.schedule('b', '@daily', 'plan tool')$$, '22023: argument "payload": no value for placeholder "{file}" in the command of job type "plan tool"'),
  ($$jobq.schedule('b', '@daily', 'plan tool', '{"file": [1]}')$$, '22023: argument "payload": an object or array for placeholder "{file}" in the command%'),
  ($$jobq.schedule('b', '@daily', 'plan tool', '{"file": {"$": "$.tick"}}')$$, 'none'),
  ($$jobq.alter_schedule('p1', job_type => 'plan tool')$$, '22023: argument "payload": no value for placeholder "{file}" in the command of job type "plan tool"'),
  ($$jobq.schedule('b', '@daily', 'plan none')$$, '42704: job type "plan none" does not exist'),
  ($$jobq.schedule('b', '@daily', 'plan mail', tenant => 'a//b')$$, '22023: argument "tenant": "a//b" begins with a slash or has an element that is empty, "." or ".."'),
  ($$jobq.schedule('b', '@daily', 'plan mail', tenant => '/')$$, '22023: argument "tenant": "/" begins%'),
  ($$jobq.schedule('b', '@daily', 'plan mail', tenant => 'a/../b')$$, '22023: argument "tenant": "a/../b" begins%'),
  ($$jobq.schedule('b', '@daily', 'plan mail', tenant => 'a/')$$, 'none'),
  ($$jobq.alter_schedule('p1', tenant => 'acme')$$, '42704: schedule "p1" of tenant "acme" does not exist'),
  ($$jobq.alter_schedule('p1', ends_at => '2026-01-01')$$, '22023: argument "ends_at": "2026-01-01 00:00:00+00" has no tick before it'),
  ($$jobq.alter_schedule('p1', ends_at => '2100-01-01', reset => '{ends_at}')$$, '22023: argument "reset": "ends_at" is given, too'),
  ($$jobq.alter_schedule('p1', payload => 'null', reset => '{payload}')$$, '22023: argument "reset": "payload" is given, too'),
  ($$jobq.alter_schedule('p1', reset => '{cron}')$$, '22023: argument "reset": "cron" is no argument with a default'),
  ($$jobq.pause_schedule('b')$$, '42704: schedule "b" does not exist'),
  ($$jobq.pause_schedule('p1', duration => '0')$$, '22023: argument "duration": "00:00:00" is not more than zero'),
  ($$jobq.resume_schedule('b')$$, '42704: schedule "b" does not exist'),
  ($$jobq.run_schedule('b')$$, '42704: schedule "b" does not exist'),
  ($$jobq.run_schedule('late', '294276-12-31 23:59:59+00')$$, '22003: argument "jitter": the job of tick%'),
  ($$jobq.run_schedule('p1', 'infinity')$$, '22023: argument "tick": "infinity" is no point in time'),
  ($$jobq.backfill_schedule('b', now(), now())$$, '42704: schedule "b" does not exist'),
  ($$jobq.backfill_schedule('p1', '-infinity', now())$$, '22023: argument "since": "-infinity" is no point in time'),
  ($$jobq.backfill_schedule('p1', now(), now(), 10001)$$, '22003: argument "max_runs": 10001 is outside 1..10000');
SELECT is_empty($$SELECT b.call, e, b.error FROM bad b, plans.error('SELECT ' || b.call) e
  WHERE e NOT LIKE replace(replace(b.error, '\', '\\'), '_', '\_')$$, 'bad input');
SELECT is(jobq.unschedule('b'), false, 'unschedule of an unknown name');

-- ---------- rights ----------
CREATE ROLE plan_app; CREATE ROLE plan_other; CREATE ROLE plan_member IN ROLE plan_app; CREATE ROLE plan_reader; CREATE ROLE plan_chief; CREATE ROLE plan_acme; CREATE ROLE plan_checked;
SELECT jobq.grant_access('plan_app', 'enqueue', 'acme', '{plan mail}'), jobq.grant_access('plan_other', 'enqueue', 'acme'), jobq.grant_access('plan_reader', 'read', 'acme', '{plan mail}'),
       jobq.grant_access('plan_chief', 'admin'), jobq.grant_access('plan_acme', 'admin', 'acme'), jobq.grant_access('plan_checked', 'enqueue', 'beta');
GRANT USAGE ON SCHEMA plans TO PUBLIC;
SELECT plans.as_role('plan_app', $$SELECT jobq.schedule('own', '@hourly', 'plan mail', tenant => 'acme')$$);
SELECT jobq.schedule('own', '@hourly', 'plan mail'), jobq.schedule('theirs', '@hourly', 'plan report', tenant => 'acme');
SELECT is(owner, 'plan_app', 'the caller is the owner') FROM plans.row('own', 'acme');
SELECT is(owner_oid, 'plan_app'::regrole::oid, 'by oid') FROM plans.row('own', 'acme');
CREATE TEMP TABLE rights (role name, call text, error text);
INSERT INTO rights VALUES
  ('plan_app', $$jobq.schedule('r', '@hourly', 'plan report', tenant => 'acme')$$, '42501: permission denied to enqueue a job of type "plan report" for tenant "acme"'),
  ('plan_app', $$jobq.schedule('r', '@hourly', 'plan mail', tenant => 'beta')$$, '42501: permission denied to enqueue a job of type "plan mail" for tenant "beta"'),
  ('plan_app', $$jobq.schedule('r', '@hourly', 'plan mail')$$, '42501: permission denied to enqueue a job of type "plan mail" without a tenant'),
  ('plan_app', $$jobq.schedule('theirs', '@hourly', 'plan report', tenant => 'acme', on_conflict => 'ignore')$$, '42501: permission denied to enqueue%'),
  ('plan_app', $$jobq.schedule('theirs', '@hourly', 'plan mail', tenant => 'acme', on_conflict => 'replace')$$, '42501: must be owner of schedule "theirs"'),
  ('plan_app', $$jobq.schedule('r', '@hourly', 'plan mail', tenant => 'acme', options => '{"timeout": "1 hour"}')$$, '42501: %"timeout": 01:00:00 is more than job type "plan mail" allows%'),
  ('plan_app', $$jobq.schedule('r', 'every 59s', 'plan mail', tenant => 'acme')$$, '42501: argument "cron": ticks of "every 59s" are 00:00:59 apart, job type "plan mail" allows 00:01:00'),
  ('plan_app', $$jobq.schedule('r', 'after 59s', 'plan mail', tenant => 'acme')$$, '42501: argument "cron": ticks of "after 59s" are 00:00:59 apart, job type "plan mail" allows 00:01:00'),
  ('plan_app', $$jobq.schedule('r', '@daily; 30 0 0 * * *', 'plan mail', tenant => 'acme')$$, '42501: argument "cron": %00:00:30 apart%'),
  ('plan_app', $$jobq.alter_schedule('own', '* * * * * *', tenant => 'acme')$$, '42501: argument "cron": %00:00:01 apart%'),
  ('plan_app', $$jobq.schedule('r', 'every 1 min; @daily', 'plan mail', tenant => 'acme')$$, 'none'),
  ('plan_app', $$jobq.alter_schedule('own', '@daily', payload => '{"a": 1}', tenant => 'acme')$$, 'none'),
  ('plan_app', $$jobq.alter_schedule('own', job_type => 'plan report', tenant => 'acme')$$, '42501: permission denied to enqueue%'),
  ('plan_app', $$jobq.alter_schedule('own')$$, '42704: schedule "own" does not exist'),
  ('plan_member', $$jobq.alter_schedule('own', '@daily', tenant => 'acme')$$, 'none'),
  ('plan_other', $$jobq.alter_schedule('own', '@daily', tenant => 'acme')$$, '42704: schedule "own" of tenant "acme" does not exist'),
  ('plan_other', $$jobq.run_schedule('own', tenant => 'acme')$$, '42704: schedule "own" of tenant "acme" does not exist'),
  ('plan_other', $$jobq.schedule('own', '@daily', 'plan mail', tenant => 'acme')$$, '42710: schedule "own" exists already'),
  ('plan_acme', $$jobq.alter_schedule('own', '@daily', tenant => 'acme')$$, '42501: must be owner of schedule "own"'),
  ('plan_acme', $$jobq.unschedule('own', 'acme')$$, '42501: must be owner of schedule "own"'),
  ('plan_chief', $$jobq.alter_schedule('own', '@daily', overlap => 'allow', tenant => 'acme', reset => '{timezone}')$$, 'none'),
  ('plan_chief', $$jobq.alter_schedule('own', payload => '{"a": 1}', tenant => 'acme')$$, '42501: must be owner of schedule "own"'),
  ('plan_chief', $$jobq.alter_schedule('own', tenant => 'acme', reset => '{options}')$$, '42501: must be owner of schedule "own"'),
  ('plan_chief', $$jobq.schedule('own', '@daily', 'plan mail', tenant => 'acme', on_conflict => 'replace')$$, '42501: permission denied to enqueue%'),
  ('plan_chief', $$jobq.backfill_schedule('own', now() - interval '2 hours', now(), tenant => 'acme')$$, 'none'),
  ('plan_chief', $$jobq.unschedule('theirs', 'acme')$$, 'none'),
  ('plan_reader', $$jobq.unschedule('own', 'acme')$$, '42501: permission denied for function unschedule');
SELECT is_empty($$SELECT r.role, r.call, e, r.error FROM rights r, plans.error('SELECT ' || r.call, r.role) e
  WHERE e NOT LIKE replace(r.error, '_', '\_')$$, 'rights of roles');
SELECT jobq.set_tenant_check('plans.admits(text)');
SELECT is(plans.error($$SELECT jobq.enqueue('plan mail', tenant => 'acme')$$, 'plan_checked'), 'none', 'a tenant check admits to enqueue');
SELECT is(plans.error($$SELECT jobq.schedule('r', '@daily', 'plan mail', tenant => 'acme')$$, 'plan_checked'),
  '42501: permission denied to enqueue a job of type "plan mail" for tenant "acme"', 'but not to schedule');
SELECT jobq.set_tenant_check(NULL);
SELECT jobq.alter_job_type('plan mail', options => '{"min_interval": "1s"}');
SELECT is(plans.error($$SELECT jobq.schedule('r', '* * * * * *', 'plan mail', tenant => 'acme')$$, 'plan_app'), 'none', 'options.min_interval');
-- rows
CREATE FUNCTION plans.names() RETURNS text LANGUAGE sql AS $$ SELECT string_agg(name || coalesce('@' || tenant, ''), ' ' ORDER BY name, tenant) FROM jobq.schedules $$;
SELECT is(plans.as_role(role, 'SELECT plans.names()'), names, role || ' sees') FROM (VALUES ('plan_app', 'own@acme'), ('plan_member', 'own@acme'), ('plan_other', NULL),
  ('plan_reader', 'own@acme p2@acme/eu'), ('plan_acme', 'own@acme p2@acme/eu theirs@acme'), ('plan_chief', plans.names())) v(role, names);
-- pause all of the caller's
SELECT plans.as_role('plan_app', 'SELECT jobq.pause_schedule(NULL, ''mine'')');
SELECT set_eq($$SELECT name, tenant FROM jobq.schedules WHERE reason = 'mine'$$, $$VALUES ('own', 'acme')$$, 'NULL: all of the caller''s');
SELECT plans.as_role('plan_app', 'SELECT jobq.resume_schedule(NULL)');
-- a job has the rights of the owner
SELECT plans.as_role('plan_chief', $$SELECT jobq.run_schedule('own', tenant => 'acme')$$);
SELECT is(q.enqueued_by, 'plan_app'::regrole::oid || ':plan_app', 'a job is enqueued by the owner') FROM jobq.queue q, plans.row('own', 'acme') s WHERE q.id = s.last_job_id AND q.schedule_id = s.id;
SELECT jobq.revoke_access('plan_app', 'enqueue', 'acme', '{plan mail}'), jobq.grant_access('plan_app', 'enqueue', 'beta');
SELECT is(plans.error($$SELECT jobq.run_schedule('own', tenant => 'acme')$$), '42501: permission denied to enqueue a job of type "plan mail" for tenant "acme"', 'not with a right that was revoked');
SELECT jobq.pause_schedule('own', tenant => 'acme');
SELECT is(plans.error($$SELECT jobq.resume_schedule('own', 'acme')$$), '42501: schedule "own": permission denied to enqueue a job of type "plan mail" for tenant "acme"', 'nor is it resumed');
-- replace makes the caller the owner
SELECT jobq.schedule('own', '@hourly', 'plan mail', '{"b": 1}', tenant => 'acme', on_conflict => 'replace');
SELECT is((owner, owner_oid)::text, (current_user, current_user::regrole::oid)::text, 'replace makes the caller the owner') FROM plans.row('own', 'acme');
ALTER ROLE plan_app RENAME TO plan_renamed;
UPDATE jobq.schedules SET owner = 'plan_app', owner_oid = 'plan_renamed'::regrole WHERE name = 'own' AND tenant = 'acme';
SELECT jobq_internal._follow_renamed_roles();
SELECT is(owner, 'plan_renamed', 'the name follows a renamed role') FROM plans.row('own', 'acme');

-- ---------- limits ----------
SELECT jobq.set_tenant_quota('acme', max_schedules => 4);
SELECT is(max_schedules, 4, 'the quota is stored') FROM jobq.tenant_quotas WHERE tenant = 'acme';
SELECT jobq.schedule('q4', '@daily', 'plan mail', tenant => 'acme/us');
SELECT is(plans.error($$SELECT jobq.schedule('q5', '@daily', 'plan mail', tenant => 'acme')$$), '53400: quota of tenant "acme" is used up: max_schedules is 4', 'quota, with the tenants below it');
SELECT is(plans.error($$SELECT jobq.schedule('q5', '@daily', 'plan mail', tenant => 'acmeous')$$), 'none', 'other tenants are not counted');
SELECT is(plans.error($$SELECT jobq.schedule('q4', '@hourly', 'plan mail', tenant => 'acme/us', on_conflict => 'replace')$$), 'none', 'nor is a replaced one');
SELECT set_config('jobq.max_schedules', (SELECT count(*)::text FROM jobq.schedules), true);
SELECT is(plans.error($$SELECT jobq.schedule('q5', '@daily', 'plan mail')$$),
  format('53400: this database has %s schedules, as many as jobq.max_schedules allows', (SELECT count(*) FROM jobq.schedules)), 'jobq.max_schedules');
SELECT jobq.unschedule('q4', 'acme/us');
SELECT is(plans.error($$SELECT jobq.schedule('q5', '@daily', 'plan mail')$$), 'none', 'one less');
SELECT set_config('jobq.max_schedules', '100000', true);

-- ---------- copies ----------
UPDATE jobq.schedules SET ticks_after = '2026-01-01', waiting_tick = '2026-01-01', next_tick = '2026-01-01 06:00';
UPDATE jobq.schedules SET home_id = home_id + 1, owner = 'plan_nobody' WHERE name = 'own' AND tenant IS NULL;
UPDATE jobq.schedules SET home_id = home_id + 1 WHERE name = 'p1';
UPDATE jobq.schedules SET home_id = home_id + 1, status = 'paused' WHERE name = 'e2';
UPDATE jobq.schedules SET home_id = home_id + 1 WHERE name IN ('a1', 'a2');
SELECT jobq.adopt();
SELECT is_empty($$SELECT name FROM jobq.schedules WHERE home_id <> jobq_internal._home_id()$$, 'adopted schedules are of this database');
SELECT ok(ticks_after >= now() AND waiting_tick IS NULL AND next_tick > now(), 'ticks before adopt() are gone') FROM plans.row('p1');
SELECT ok(ticks_after >= now() AND next_tick IS NULL, 'also of a schedule that cannot run') FROM plans.row('own') WHERE owner_oid = 0;
SELECT is(next_tick, NULL, 'and of a paused one') FROM plans.row('e2');
SELECT is(next_tick, NULL, '"after": its live job decides') FROM plans.row('a1');
SELECT is(next_tick, '2100-01-01', 'or starts_at') FROM plans.row('a2');
SELECT is(ticks_after, '2026-01-01', 'the schedules that were at home stay') FROM plans.row('p2', 'acme/eu');

-- ---------- schedules as their users write them ----------
SELECT jobq.create_job_type(t, 'plans.work(jsonb)') FROM unnest('{session-cleanup,sync}'::text[]) t;
SELECT jobq.schedule('session-cleanup', '0 */15 * * * *', 'session-cleanup');
SELECT jobq.schedule('sync', '@daily', 'sync');
SELECT results_eq($$SELECT name, extract(epoch FROM next_tick)::bigint % (CASE name WHEN 'sync' THEN 86400 ELSE 900 END), next_tick - now() <= CASE name WHEN 'sync' THEN interval '1 day' ELSE interval '15 min' END
  FROM jobq.schedules WHERE name IN ('session-cleanup', 'sync') ORDER BY name$$, $$VALUES ('session-cleanup'::text, 0::bigint, true), ('sync', 0, true)$$, 'six fields, and a name');

-- ---------- a replace by an administrator; the last of max_runs ----------
CREATE ROLE plan_boss;
SELECT jobq.grant_access('plan_boss', 'admin', NULL, '{plan mail}');
SELECT jobq.schedule('last', '@yearly', 'plan mail', max_runs => 2, tenant => 'acme');
SELECT plans.as_role('plan_boss', $$SELECT jobq.schedule('last', '@yearly', 'plan mail', max_runs => 2, tenant => 'acme', on_conflict => 'replace')$$);
SELECT is(owner, 'plan_boss', 'an administrator that replaces a schedule becomes its owner, also by the same definition') FROM plans.row('last', 'acme');
SELECT jobq.run_schedule('last', tenant => 'acme');
SELECT is(status, 'active', 'one run of two') FROM plans.row('last', 'acme');
SELECT jobq.run_schedule('last', tenant => 'acme');
SELECT results_eq($$SELECT status, runs, next_tick FROM plans.row('last', 'acme')$$, $$VALUES ('finished'::text, 2::bigint, NULL::timestamptz)$$,
  'max_runs finishes a schedule that run_schedule has run');

-- ---------- purge_tenant ----------
SELECT jobq.purge_tenant('acme');
SELECT set_eq($$SELECT DISTINCT tenant FROM jobq.schedules WHERE tenant IS NOT NULL$$, ARRAY['acme/eu'], 'purge_tenant drops the schedules of exactly that tenant');

SELECT * FROM finish();
ROLLBACK;
