# A row of jobq.limits that plain SQL has made invalid is named in health() and in the log.  It
# stops the types that need it: all other jobs run.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('bad_rows', 'jobq.max_sql_workers = 2', 'autovacuum = off');
$node->start;
sub sql { return $node->safe_psql('postgres', join ";\n", @_) }

sql('CREATE EXTENSION jobq', 'CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$',
	q{SELECT jobq.create_job_type('plain', 'work(jsonb)')}, q{SELECT jobq.set_limit('shared', rate_limit => 10000)},
	q{SELECT jobq.create_job_type('sharing', 'work(jsonb)', options => '{"limits": ["shared"]}')},
	q{SELECT jobq.set_signal('busy', true)}, q{SELECT jobq.create_job_type('giving_way', 'work(jsonb)')},
	q{SELECT jobq.set_pressure_rule('giving_way', 'busy', priority_adj => -10)}, q{SELECT jobq.set_tenant_quota('acme', max_running => 10)});
my $dispatcher = wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $message = q{jobq.health()->'checks'->'queues'->>'message'};

sub runs
{
	my ($type, $what) = @_;
	return wait_status($node, 'postgres', sql("SELECT jobq.enqueue('$type')"), 'completed', "$what: $type runs");
}

# name, the change, the value in the message, its undoing, the type that waits
my @cases = (
	[ 'a negative rate_limit', ['UPDATE jobq.limits SET rate_limit = -1'], 'rate_limit of limit "shared" is -1', 'UPDATE jobq.limits SET rate_limit = 1000', 'sharing' ],
	[ 'a negative max_concurrent', ['UPDATE jobq.limits SET max_concurrent = -2147483648'], 'max_concurrent of limit "shared" is -2147483648', 'UPDATE jobq.limits SET max_concurrent = 0', 'sharing' ],
	[ 'an empty window', [q{UPDATE jobq.limits SET rate_window = '0'}], 'rate_window of limit "shared" is 00:00:00', "UPDATE jobq.limits SET rate_window = '1s'", 'sharing' ],
);
foreach (@cases)
{
	my ($what, $change, $text, $undo, $waits) = @$_;
	my $log = -s $node->logfile;
	my $job;

	sql(@$change);
	wait_for_sql($node, "SELECT $message LIKE '%$text%'", "$what: health() reports it");
	is(sql(q{SELECT jobq.health()->'checks'->'queues'->>'status'}), 'degraded', "$what: and is degraded");
	ok($node->wait_for_log(qr/LOG:  jobq: .*\Q$text\E/, $log), "$what: so does the log");
	$job = sql("SELECT jobq.enqueue('$waits')");
	runs($_, $what) foreach grep { $_ ne $waits } qw(plain sharing giving_way);
	is(sql("SELECT status FROM jobq.jobs WHERE id = '$job'"), 'pending', "$what: $waits waits");
	sql($undo);
	wait_status($node, 'postgres', $job, 'completed', "$what: $waits runs when it is undone");
	wait_for_sql($node, "SELECT $message IS NULL", "$what: and health finds nothing");
	is(dispatcher($node, 'postgres'), $dispatcher, "$what: in the same dispatcher");
}

# A message has all of a name of 63 bytes, and the first 63 bytes of a longer one, which only plain
# SQL can write.
sql(q{SELECT jobq.set_limit(n, max_concurrent => 1), jobq.create_job_type(n, 'work(jsonb)', options => jsonb_build_object('limits', ARRAY[n])) FROM CAST('x' || repeat(chr(233), 31) AS text) n},
	q{UPDATE jobq.limits SET max_concurrent = -1 WHERE name LIKE 'x%'}, q{SELECT jobq.enqueue(name) FROM jobq.job_types WHERE name LIKE 'x%'});
my $whole = q{SELECT %s = format('jobs of type %%s wait: max_concurrent of limit "%%s" is -1', id, name || '%s') FROM jobq.job_types WHERE name LIKE 'x%%'};
wait_for_sql($node, sprintf($whole, $message, ''), 'a name of 63 bytes: health() has the whole message');
my $log_end = -s $node->logfile;
sql(q{UPDATE jobq.limits SET name = name || repeat(chr(233), 300) WHERE name LIKE 'x%'});
$node->wait_for_log(qr/limit "x.*the row has no effect/, $log_end);
ok(utf8::decode(my $line = slurp_file($node->logfile, $log_end)), 'a long name: the log is valid UTF-8');
wait_for_sql($node, sprintf($whole, $message, '...'), 'a long name: health() has all of the rest');
sql(q{SELECT jobq.cancel_jobs(name), jobq.drop_job_type(name, force => true) FROM jobq.job_types WHERE name LIKE 'x%'}, q{DELETE FROM jobq.limits WHERE name LIKE 'x%'});

# Values outside of the range are clamped.
sql('INSERT INTO jobq.pressure_rules SELECT 0, name, 2147483647, false, -5 FROM jobq.signals',
	q{UPDATE jobq.pressure_rules SET priority_adj = 2147483647}, q{UPDATE jobq.signals SET active_until = '-infinity', changed_at = 'infinity'});
runs('giving_way', 'a signal that ended before all time');
sql(q{UPDATE jobq.signals SET active = true, active_until = 'infinity', changed_at = '-infinity'});
runs($_, 'priorities far out of range') foreach qw(plain giving_way);

is(dispatcher($node, 'postgres'), $dispatcher, 'the dispatcher is the same');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|terminating any other active|dispatcher.*exited with/, 'no process was hurt');

# A dispatcher that starts cannot load a type; leases of it, and those after them, end in time.
sql(q{SELECT jobq.create_job_type('pulled', options => '{"limits": ["shared"]}'), jobq.create_job_type('other')}, q{SELECT jobq.enqueue(t) FROM unnest('{pulled,other}'::text[]) t});
is(sql(q{SELECT count(*) FROM unnest('{pulled,other}'::text[]) t, LATERAL jobq.claim(ARRAY[t], lease => '5s') c}), 2, 'two jobs are claimed');
sql('UPDATE jobq.limits SET max_concurrent = -1');
restart_dispatcher($node);
wait_for_sql($node, "SELECT $message LIKE '%max_concurrent of limit \"shared\" is -1%'", 'which cannot load a type');
wait_for_sql($node, qq{SELECT status <> 'running' FROM jobq.jobs WHERE job_type = '$_'}, "$_: its lease ends") foreach qw(pulled other);
sql('UPDATE jobq.limits SET max_concurrent = 0', q{SELECT jobq.cancel_jobs(t), jobq.drop_job_type(t, force => true) FROM unnest('{pulled,other}'::text[]) t});
wait_for_sql($node, "SELECT $message IS NULL", 'and health finds nothing');
$node->stop;
done_testing();
