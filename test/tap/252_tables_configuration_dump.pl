# Dump and restore of the user's configuration: each of its tables, row by row, and every privilege,
# found in the catalog.  The configuration has the same effect in the copy, on the same server and
# on another.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my @roles = ('CREATE ROLE shop LOGIN', 'CREATE ROLE support LOGIN', 'CREATE ROLE watcher LOGIN', 'CREATE ROLE "Odd role" LOGIN');
my $node = jobq_server('configured', 'jobq.max_sql_workers = 2', "jobq.before_drop_type = 'held'");
$node->start;
$node->safe_psql('postgres', join ';', @roles, 'CREATE DATABASE source');
$node->safe_psql('source', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION work(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF p ? 'fail' THEN RAISE 'told to' USING DETAIL = 'of it'; END IF;
  RETURN p;
END $$;
CREATE FUNCTION serves(tenant text) RETURNS boolean LANGUAGE sql STABLE AS $$ SELECT tenant = 'beta' AND current_user = 'support' $$;
CREATE TABLE busy (yes boolean);
INSERT INTO busy VALUES (true);
GRANT SELECT ON busy TO PUBLIC;

SELECT jobq.set_limit('api', max_concurrent => 2, rate_limit => 100, rate_window => '1min'), jobq.set_limit('other', 3);
SELECT jobq.create_job_type('mail', 'work(jsonb)', max_attempts => 1, options => '{"limits": ["api"], "aging": {"max": 5}}', run_as => 'shop');
SELECT jobq.create_job_type('held', 'work(jsonb)', keep_dead => '1 year', rate_limit => 5, rate_window => '1h', base_priority => -7);
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/echo', '{text}'], options => '{"output": "text", "env": {"LANG": "C"}}');
SELECT jobq.create_job_type('gone', 'work(jsonb)');
SELECT jobq.drop_job_type('gone');
-- Roles with other oids on another server.
UPDATE jobq.job_types SET owner = 'support' WHERE name = 'gone';

SELECT jobq.set_signal('call', true), jobq.set_signal('for_a_day', true, ttl => '1 day');
SELECT jobq.create_signal('busy', '(SELECT yes FROM busy)', every => '1s');
CREATE FUNCTION asked() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE LOG ''asked in %'', current_database(); RETURN true; END';
SELECT jobq.create_signal('asked', 'asked()', every => '1s');
SELECT jobq.create_signal('broken', '1 / (SELECT count(*) FROM busy WHERE NOT yes) > 0', every => '1s');
UPDATE jobq.signals SET definer = 'shop' WHERE name = 'broken';
SELECT jobq.set_pressure_rule('held', 'call', block => true), jobq.set_pressure_rule('mail', 'busy', priority_adj => -20),
       jobq.set_pressure_rule(NULL, 'load', max_weight => 3);

SELECT jobq.grant_access('shop', 'enqueue', job_types => '{mail}'), jobq.grant_access('support', 'admin', tenant => 'acme'),
       jobq.grant_access('watcher', 'read'), jobq.grant_access('"Odd role"', 'read');
SELECT jobq.set_tenant_check('serves(text)');
SELECT jobq.set_tenant_quota('acme', max_live => 3, max_bytes => 10000, enqueues_per_minute => 1000, max_schedules => 1),
       jobq.set_tenant_quota('beta', max_live => 100, max_running => 2);
SELECT jobq.enqueue('mail', '{"fail": true}', tenant => 'beta', unique_key => 'u', unique_for => '1 day');
SELECT jobq.enqueue('mail', tenant => 'acme');
SET ROLE shop;
SELECT jobq.schedule('new year', '@yearly', 'mail', '{"at": {"$": "$.tick"}}', 'Europe/Berlin', '2100-01-01', '2101-02-01', 5, 'all', 7, 'queue', '1h', 3,
  '{"priority": -10}', 'acme');
SELECT jobq.schedule('nightly', '@daily', 'mail'), jobq.pause_schedule('nightly', 'repairs', '1 year');
RESET ROLE;
-- as the conductor has it after some ticks
UPDATE jobq.schedules SET runs = 5, skipped = 2, last_tick = '2026-01-01', last_job_id = gen_random_uuid(), failures = 1,
  waiting_tick = '2026-01-02', ticks_after = '2026-01-02' WHERE name = 'nightly';
UPDATE jobq.schedules SET ended_job_id = last_job_id WHERE name = 'nightly';
END
wait_dispatcher($node, 'source', 'the dispatcher runs');
ok($node->poll_query_until('source', 'SELECT count(*) = 1 FROM jobq.dead_letters'), 'a dead letter, and its alert');
ok($node->poll_query_until('source', 'SELECT count(*) = 1 FROM jobq.history'), 'history');
ok($node->poll_query_until('source', "SELECT count(problem) = 1 AND bool_and(active OR name = 'broken') FROM jobq.signals"), 'conditions have been asked');
$node->safe_psql('source', <<'END');
SELECT jobq.pause_job_type('tool', 'until tomorrow', '1 day');
SELECT jobq.enqueue('held', '{"n": 1}', tenant => 'acme'), jobq.enqueue('held', '{"n": 2}', tenant => 'acme/eu');
SELECT jobq.resume_job_type('mail');
INSERT INTO jobq.unique_for_types VALUES (1);
INSERT INTO jobq.hook_references SELECT q.id, h.id FROM jobq.queue q, jobq.history h LIMIT 1;
SELECT jobq_internal._ensure_partition('jobq.history', now() + interval '7 days');
INSERT INTO jobq.artifacts (job_id, workflow_id, task_key, tenant, attempt, key, kind, bucket, size_bytes, content_type, checksum, data, job_type, expires_at)
  VALUES (gen_random_uuid(), gen_random_uuid(), 't', 'acme', 1, 'a/b', 'output', 'media', 1, 'text/plain', 'sha256:' || repeat('0', 64), '{}', 'mail', now() + interval '7 days');
SELECT jobq.create_workflow('flow', '[{"key": "a"}]', '1');
INSERT INTO jobq.runs SELECT gen_random_uuid(), id, 1, now(), '2100-01-01', 'ended', '{"code": "timeout"}', true, 'why', '[]', '{}', true, '{a}' FROM jobq.job_types WHERE name = 'flow';
INSERT INTO jobq.audit (by, action, object_type, client_addr) VALUES ('me', 'adopt', 'database', '::1');
INSERT INTO jobq.run_timers VALUES ('2100-01-01', gen_random_uuid());
SELECT jobq.enqueue('tool', '{"text": "b"}', after => ARRAY[jobq.enqueue('tool', '{"text": "a"}')]);
INSERT INTO jobq.before_drops VALUES ('events', now(), now() + interval '1 minute', gen_random_uuid(), 'no such type');
INSERT INTO jobq.dependencies SELECT h.id, q.id FROM jobq.queue q, jobq.history h LIMIT 1;
SELECT jobq.stop_all('moving');
-- it must not run
UPDATE jobq.signals SET every = '1 day' WHERE condition IS NOT NULL;
END

# ---------- the tables, by the catalog ----------

# Tables not in dumps, as they follow from dumped ones or describe this server.
my %derived = (
	'jobq.counted_types' => 'how far maintenance has got',
	'jobq.dead_letter_count' => 'a trigger writes it with the dead letters',
	'jobq.disk_log' => 'the disks of this server',
	'jobq.quota_jobs' => 'jobq.adopt() counts');
my $tables = q{SELECT c.oid::regclass AS name, c.oid = ANY (e.extconfig) OR c.relkind = 'p' AS dumped, c.relkind
  FROM pg_class c, pg_extension e
 WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind IN ('r', 'p', 'S') AND NOT c.relispartition AND e.extname = 'jobq'};

is($node->safe_psql('source', "SELECT string_agg(name::text, ' ' ORDER BY name::text) FROM ($tables) t WHERE NOT dumped"),
	join(' ', sort keys %derived), 'every table and sequence is in dumps, or need not be');

my @dumped = split /\n/, $node->safe_psql('source', "SELECT name FROM ($tables) t WHERE dumped AND relkind <> 'S' ORDER BY name::text");
my @sequences = split /\n/, $node->safe_psql('source', "SELECT name FROM ($tables) t WHERE dumped AND relkind = 'S' ORDER BY name::text");

# Comparing an empty table or a column of NULLs would prove nothing.
# 251_tables_dump.pl tests the jobs.
foreach my $table (grep { !/^jobq\.(queue|history|dead_letters|events|alerts)$/ } @dumped)
{
	my @columns = split /\n/, $node->safe_psql('source', "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = '$table'::regclass AND attnum > 0 AND NOT attisdropped");
	my $empty = join ', ', map { "CASE WHEN count($_) = 0 THEN '$_' END" } @columns;

	is($node->safe_psql('source', "SELECT concat_ws(' ', $empty) FROM $table"), '', "$table: each column has a value");
}

# The columns with the name of a role, each with the column of its oid.
my %role_columns = (
	'jobq.access' => { role => 'role_oid' },
	'jobq.job_types' => { owner => 'owner_oid', run_as => 'run_as_oid' },
	'jobq.schedules' => { owner => 'owner_oid' }, 'jobq.signals' => { definer => 'definer_oid' },
	'jobq.workflows' => { created_by => 'definer_oid' });

# Rows as JSON.  The oid of a role differs from server to server: the name of the
# role that has it is compared.
sub row_of
{
	my ($table) = @_;

	return join ' || ', 'to_jsonb(t)',
	  map { "jsonb_build_object('$_', (SELECT rolname FROM pg_roles WHERE oid = t.$_))" } sort values %{ $role_columns{$table} // {} };
}
my $rows = join ' UNION ALL ',
  (map { "SELECT '$_', (" . row_of($_) . ")::text FROM $_ t" } @dumped),
  (map { "SELECT '$_', last_value::text FROM $_" } @sequences);
# The privileges of every object, and those of PUBLIC.
my $privileges = q{
SELECT what, (SELECT string_agg(concat_ws(' ', coalesce(r.rolname, 'PUBLIC'), x.privilege_type), ', ' ORDER BY 1) FROM aclexplode(acl) x LEFT JOIN pg_roles r ON r.oid = x.grantee)
  FROM (SELECT oid::regprocedure::text, proacl FROM pg_proc WHERE pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace) UNION ALL
        SELECT oid::regclass::text, relacl FROM pg_class WHERE relnamespace = 'jobq'::regnamespace AND relkind IN ('r', 'p', 'v', 'S') UNION ALL
        SELECT attrelid::regclass || '.' || attname, attacl FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
         WHERE relnamespace = 'jobq'::regnamespace AND attacl IS NOT NULL UNION ALL
        SELECT oid::regtype::text, typacl FROM pg_type WHERE typnamespace = 'jobq'::regnamespace AND typacl IS NOT NULL UNION ALL
        SELECT nspname, nspacl FROM pg_namespace WHERE nspname IN ('jobq', 'jobq_internal')) o(what, acl)};

sub state_of
{
	my ($server, $db) = @_;

	return map { $server->safe_psql($db, "SELECT * FROM ($_) s(a, b) ORDER BY a COLLATE \"C\", b COLLATE \"C\"") } $rows, $privileges;
}

# Privileges whose grants may have come in another order.
sub in_order { return join "\n", map { my ($of, $acl) = split /\|/, $_, 2; "$of|" . join ', ', sort split /, /, $acl // '' } split /\n/, $_[0]; }

check_roles($node, 'source', 'source');
ok($node->poll_query_until('source', 'SELECT NOT EXISTS (SELECT FROM jobq_internal._missing_partitions())'), 'every partition is made');
my ($expected_rows, $expected_privileges) = state_of($node, 'source');
like($expected_privileges, qr/^jobq\.enqueue\(.*shop EXECUTE/m, 'privileges are among it');

# ---------- dumps ----------

my $dir = PostgreSQL::Test::Utils::tempdir();
command_ok([ 'pg_dump', '-d', $node->connstr('source'), '-f', "$dir/plain.sql" ], 'pg_dump, plain');
command_ok([ 'pg_dump', '-d', $node->connstr('source'), '-Fc', '-f', "$dir/custom.dump" ], 'pg_dump, custom');
is_deeply([ state_of($node, 'source') ], [ $expected_rows, $expected_privileges ], 'nothing moved meanwhile');

sub restore
{
	my ($server, $db, @tolerant) = @_;

	$server->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE template0");
	return command_ok(
		$db =~ /plain/ ? [ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $server->connstr($db), '-f', "$dir/plain.sql" ]
		: [ 'pg_restore', '--exit-on-error', '-d', $server->connstr($db), "$dir/custom.dump" ],
		$server->name . ": $db restored");
}

sub says
{
	my ($server, $db, $role, $sql) = @_;
	my ($rc, $out, $err) = $server->psql($db, $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=sqlstate' ]);

	return $rc == 0 ? $out : $err =~ /ERROR:\s+(\w{5})/ ? $1 : $err;
}

# Each oid is that of the role of the stored name, on this server.
sub check_roles
{
	my ($server, $db, $what) = @_;
	my %rows = ('jobq.access' => 4, 'jobq.job_types' => 5, 'jobq.schedules' => 2, 'jobq.signals' => 3, 'jobq.workflows' => 1);

	foreach my $table (sort keys %role_columns)
	{
		while (my ($name, $oid) = each %{ $role_columns{$table} })
		{
			is($server->safe_psql($db, "SELECT count(*), bool_and($oid IS NOT NULL AND $oid = quote_ident($name)::regrole) FROM $table WHERE $name IS NOT NULL"),
				"$rows{$table}|t", "$what: $table.$oid is the role of that name");
		}
	}
	return;
}

# The effect of the configuration.
sub check_meaning
{
	my ($server, $db, $what) = @_;
	my $sql = sub { return $server->safe_psql($db, $_[0]) };

	check_roles($server, $db, $what);
	is(says($server, $db, 'shop', q{SELECT jobq.enqueue('mail') IS NOT NULL}), 't', "$what: a role may enqueue what it may");
	is(says($server, $db, 'shop', q{SELECT jobq.enqueue('held')}), '42501', "$what: and nothing else");
	is(says($server, $db, 'support', q{SELECT DISTINCT tenant FROM jobq.list_jobs() ORDER BY 1}), "acme\nacme/eu\nbeta",
		"$what: a role sees its tenant, and the one that the check admits it to");
	is(says($server, $db, 'watcher', 'SELECT count(*) > 0 FROM jobq.alerts'), 't', "$what: a role that may read sees alerts");
	sqlstate_is($server, $db, q{SELECT jobq.drop_limit('api')}, '55006', "$what: a shared limit is in use");
	sqlstate_is($server, $db, q{SELECT jobq.enqueue('mail', unique_key => 'u', tenant => 'beta', on_conflict => 'error')}, '23505',
		"$what: a key that is held is held");

	ok($server->poll_query_until($db, "SELECT clock_timestamp() > '" . $sql->('SELECT clock_timestamp()') . "'::timestamptz + interval '1.5 s'"),
		"$what: time passes");
	unlike(slurp_file($server->logfile), qr/LOG:  asked in $db/, "$what: no condition is run before it is adopted");
	$sql->('SELECT jobq.adopt()');
	check_roles($server, $db, "$what, adopted");
	is($sql->(q{SELECT next_tick = '2100-12-31 23:00+00', ticks_after > now() - interval '1 min', runs FROM jobq.schedules WHERE name = 'new year'}), 't|t|0',
		"$what: a schedule has its next tick");
	is($sql->(q{SELECT status, runs, waiting_tick IS NULL, last_tick = '2026-01-01', ticks_after > now() - interval '1 min' FROM jobq.schedules WHERE name = 'nightly'}),
		'paused|5|t|t|t', "$what: the ticks before are gone");
	sqlstate_is($server, $db, q{SELECT jobq.schedule('more', '@daily', 'held', tenant => 'acme/us')}, '53400', "$what: schedules count for the quota");
	ok($server->wait_for_log(qr/LOG:  asked in $db/), "$what: then they are asked");
	is($sql->(q{SELECT jobq.enqueue('held', tenant => 'acme') IS NOT NULL}), 't', "$what: a quota admits");
	sqlstate_is($server, $db, q{SELECT jobq.enqueue('held', tenant => 'acme/us')}, '53400', "$what: and counts what was restored");
	$sql->('SELECT jobq.health()') for 1 .. 2;
	like($sql->(q{SELECT jobq.health()->'checks'->'queues'->>'message'}), qr/stopped: moving/, "$what: it is stopped");
	is($sql->(q{SELECT count(*) FROM jobq.jobs WHERE started_at > (SELECT since FROM jobq.stopped)}), 0, "$what: nothing has begun");
	$sql->('SELECT jobq.start_all()');
	ok($server->poll_query_until($db, "SELECT count(*) = 0 FROM jobq.jobs WHERE job_type = 'mail' AND status = 'pending'"), "$what: what may run runs");
	is($sql->(q{SELECT DISTINCT status FROM jobq.jobs WHERE job_type = 'held'}), 'pending', "$what: a signal blocks a type");
	$sql->(q{SELECT jobq.set_signal('call', false)});
	ok($server->poll_query_until($db, "SELECT count(*) = 0 FROM jobq.jobs WHERE job_type = 'held' AND status <> 'completed'"), "$what: until it clears");
	$sql->(q{UPDATE busy SET yes = false; UPDATE jobq.signals SET every = '1s' WHERE name = 'busy'});
	ok($server->poll_query_until($db, "SELECT NOT active FROM jobq.signals WHERE name = 'busy'"), "$what: a condition is asked");
	$sql->(q{SELECT jobq.set_signal('new', true)});
	is($sql->(q{SELECT name FROM jobq.signals ORDER BY id DESC LIMIT 1}), 'new', "$what: ids go on");
	return;
}

my $other = jobq_server('elsewhere', 'jobq.max_sql_workers = 2');
$other->start;
# other oids
$other->safe_psql('postgres', join ';', 'CREATE ROLE first', reverse @roles);
foreach my $server ($node, $other)
{
	foreach my $db (qw(plain custom))
	{
		my $what = $server->name . " $db";

		restore($server, $db);
		my ($has_rows, $has_privileges) = state_of($server, $db);
		is($has_rows, $expected_rows, "!$what: every row is there as it was");
		is($has_privileges, $expected_privileges, "$what: and every privilege");
		check_meaning($server, $db, $what);
	}
}

# ---------- without owners and privileges ----------

# A publication of all tables comes along: adopt() updates tables that it has.
$node->safe_psql('source', 'SET client_min_messages = error; CREATE PUBLICATION everything FOR ALL TABLES');
command_ok([ 'pg_dump', '-O', '-x', '-d', $node->connstr('source'), '-Fc', '-f', "$dir/naked.dump" ], 'pg_dump -O -x');
$other->safe_psql('postgres', 'CREATE DATABASE naked TEMPLATE template0');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $other->connstr('naked'), "$dir/naked.dump" ], 'restored');
is(says($other, 'naked', 'shop', q{SELECT jobq.enqueue('mail') IS NOT NULL}), '42501', 'such a dump has no privileges');
is($other->safe_psql('naked', q{SELECT puballtables FROM pg_publication WHERE pubname = 'everything'}), 't', 'it has the publication');
$other->safe_psql('naked', 'SELECT jobq.adopt()');
is(in_order((state_of($other, 'naked'))[1]), in_order($expected_privileges), 'adopt() grants them again');
is(says($other, 'naked', 'shop', q{SELECT jobq.enqueue('mail') IS NOT NULL}), 't', 'they have an effect');

# ---------- over a live database ----------

$other->safe_psql('postgres', 'CREATE DATABASE live');
$other->safe_psql('live', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION waits(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); END $$;
SELECT jobq.create_job_type('waits', 'waits(jsonb)', options => '{"events": "all"}');
END
wait_status($other, 'live', $other->safe_psql('live', q{SELECT jobq.enqueue('waits')}), 'completed', 'a job');
command_ok([ 'pg_dump', '-d', $other->connstr('live'), '-Fc', '-f', "$dir/live.dump" ], 'is dumped');
my $gate = $other->background_psql('live');
$gate->query_safe('SELECT pg_advisory_lock(1)');
$other->safe_psql('live', q{SELECT jobq.enqueue('waits', unique_key => 'during')});
ok($other->poll_query_until('live', q{SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory')}), 'a handler runs');
command_ok([ 'pg_restore', '--clean', '--if-exists', '--exit-on-error', '-d', $other->connstr('live'), "$dir/live.dump" ],
	'a restore does not wait for it');
$gate->quit;
is($other->safe_psql('live', q{SELECT count(*) || ' ' || count(*) FILTER (WHERE unique_key = 'during') FROM jobq.jobs}), '1 0', 'the jobs are those of the dump');
$other->safe_psql('live', 'SELECT jobq.adopt()');
wait_status($other, 'live', $other->safe_psql('live', q{SELECT jobq.enqueue('waits')}), 'completed', 'and run after adopt()');

# ---------- where the roles are missing ----------

my $bare = jobq_server('bare');
$bare->start;
$bare->safe_psql('postgres', 'CREATE ROLE shop LOGIN');    # run_as of a type
$bare->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE template0');
my ($rc, $out, $err) = $bare->psql('copy', slurp_file("$dir/plain.sql"), on_error_stop => 0);
my %errors = map { $_ => 1 } $err =~ /ERROR:\s+(.*)/g;
is(join(', ', sort keys %errors), 'role "Odd role" does not exist, role "support" does not exist, role "watcher" does not exist',
	'where roles are missing nothing else fails');
is($bare->safe_psql('copy', 'SELECT role, role_oid = 0 FROM jobq.access ORDER BY role COLLATE "C"'), "Odd role|t\nshop|f\nsupport|t\nwatcher|t",
	'their grants are there and give nothing');
$bare->safe_psql('postgres', join ';', grep { !/ shop / } @roles);
is(says($bare, 'copy', 'watcher', 'SELECT count(*) FROM jobq.list_jobs()'), '42501', 'nor do they when a role of that name comes');
$bare->safe_psql('copy', q{SELECT jobq.grant_access('watcher', 'read'), jobq.grant_access('support', 'read'), jobq.revoke_access('support', 'read')});
is(says($bare, 'copy', 'watcher', 'SELECT count(*) FROM jobq.list_jobs()'), '6', 'but when it is granted again');
command_ok([ 'pg_dump', '-d', $bare->connstr('copy'), '-Fc', '-f', "$dir/custom.dump" ], 'such a copy is dumped');
restore($bare, 'custom');
is(says($bare, 'custom', 'watcher', 'SELECT count(*) FROM jobq.list_jobs()'), '6', 'a renewed grant holds in its copy');
is($bare->safe_psql('custom', q{SELECT string_agg(role || ' ' || access, ', ' ORDER BY role) FROM jobq.access WHERE role <> 'Odd role'}), 'shop enqueue, watcher read',
	'and a revoked one does not come back');

$_->stop foreach $node, $other, $bare;
done_testing();
