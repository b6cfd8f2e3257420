# options.env of tools is stored where readers of the registry do not see it: tools still get it,
# after an update, after a dump and restore, and when its table was changed or locked.

use strict;
use warnings;

use ExecTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use UpgradeTest;

my $node = jobq_node('env', 'jobq.max_sql_workers = 1', 'jobq.sweep_interval = 100ms');
my $says = tool('says', <<'END');
#!/bin/sh
printf '%s' "$GREETING $TOKEN"
END
$node->safe_psql('postgres', 'CREATE ROLE reader LOGIN');

my $tools = sprintf q{SELECT jobq.create_job_type('%%s', command => ARRAY['%s'], max_attempts => 1,
  options => '{"output": "text", "env": {"GREETING": "hello", "TOKEN": "s3cret"}}')}, $says;

sub sql { my ($db, $text) = @_; return $node->safe_psql($db, $text) }

# Returns the output of the tool of a type.
sub said
{
	my ($db, $type) = @_;
	my $id = sql($db, "SELECT jobq.enqueue('$type')");

	$node->poll_query_until($db, "SELECT status IN ('completed', 'error') FROM jobq.jobs WHERE id = '$id'") or diag("$type has not ended");
	return sql($db, "SELECT coalesce(result #>> '{}', error_msg) FROM jobq.jobs WHERE id = '$id'");
}

# All text that the reader may read of the registry.
sub read_by_reader
{
	my ($db) = @_;
	my ($rc, $out, $err) = $node->psql($db, q{SELECT t::text FROM jobq.job_types t}, extra_params => [ '-U', 'reader' ]);

	return $out . $err;
}

sql('postgres', sprintf $tools, 'says');
sql('postgres', q{SELECT jobq.grant_access('reader', 'read')});
is(said('postgres', 'says'), 'hello s3cret', 'a tool gets its environment');
like(read_by_reader('postgres'), qr/says.*output/, 'a reader sees the options');
unlike(read_by_reader('postgres'), qr/s3cret|TOKEN/, 'but no environment');
sql('postgres', q{SELECT jobq.alter_job_type('says', options => '{"env": {"GREETING": "hi"}}')});
is(said('postgres', 'says'), 'hi ', 'another one counts for the next job');
sql('postgres', q{SELECT jobq.alter_job_type('says', max_attempts => 2)});
is(said('postgres', 'says'), 'hi ', 'a change of something else leaves it');
sql('postgres', q{UPDATE jobq.job_type_env SET env = '{"GREETING": "by hand"}'});
is(said('postgres', 'says'), 'by hand ', 'so does an UPDATE of the table');
sql('postgres', q{UPDATE jobq.job_types SET options = options || '{"env": {"GREETING": "in options"}}' WHERE name = 'says'});
is(said('postgres', 'says'), 'in options ', 'and one of the options');

# dump and restore, with the environment
sql('postgres', 'CREATE DATABASE restored');
my $dump = $node->basedir . '/dump.sql';
$node->run_log([ 'pg_dump', '-f', $dump, '-d', $node->connstr('postgres') ]);
$node->run_log([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('restored') ]) or fail('restore');
sql('restored', 'SELECT jobq.adopt()');
is(said('restored', 'says'), 'in options ', 'a restored database has the environment');
unlike(read_by_reader('restored'), qr/GREETING/, 'apart from the options');
$dump = $node->basedir . '/reader.sql';
my $reader = $node->connstr('postgres') . ' user=reader';
ok(!$node->run_log([ 'pg_dump', '-f', $dump, '-d', $reader ]), 'a reader cannot dump the extension');
unlike(-e $dump ? slurp_file($dump) : '', qr/GREETING|s3cret/, 'nor any of it');

# a database of the former release, in which options have it
sql('postgres', 'CREATE DATABASE old');
sql('old', sprintf q{CREATE EXTENSION jobq VERSION '%s'}, old_version());
sql('old', <<"END");
INSERT INTO jobq.job_types (name, owner, run_as, command, max_attempts, backoff, backoff_base, backoff_max, backoff_jitter, timeout,
    base_priority, max_concurrent, cpu_weight, rate_limit, rate_window, keep_completed, critical, options, dropped_at)
SELECT name, current_user, current_user, ARRAY['$says'], 1, 'fixed', '1s', '1s', 0, '1min', 0, 0, 0, 0, '1s', '7 days', false,
    '{"output": "text", "env": {"GREETING": "hello", "TOKEN": "s3cret"}}', dropped_at
  FROM (VALUES ('says', NULL), ('gone', now())) v(name, dropped_at)
END
sql('old', 'ALTER EXTENSION jobq UPDATE');
sql('old', q{SELECT jobq.grant_access('reader', 'read')});
is(sql('old', q{SELECT count(*) FILTER (WHERE options ? 'env'), (SELECT count(*) FROM jobq.job_type_env) FROM jobq.job_types}), '0|1',
	'its update moves the environment, that of a dropped type is removed');
is(said('old', 'says'), 'hello s3cret', 'the tool still gets it');
like(read_by_reader('old'), qr/says.*output/, 'a reader sees the options');
unlike(read_by_reader('old'), qr/s3cret/, 'without it');
sql('old', q{SELECT jobq.revoke_access('reader', 'read')});
like(read_by_reader('old'), qr/permission denied for table job_types/, 'and nothing once that is revoked');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|exited with exit code [2-9]|terminated by signal/, 'nothing has crashed');
$node->stop;
done_testing();
