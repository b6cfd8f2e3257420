# Eight sessions enqueue 50,000 jobs by every function and statement, while older transactions are
# open: a committed job runs exactly once, a rolled-back one never.  The sweep is off, so a job
# without a publication at commit would stay.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

use constant { SESSIONS => 8, PER_SESSION => 6250, OPEN => 4 };

my $node = jobq_server('concurrency', 'max_connections = 40', 'max_prepared_transactions = 100', "jobq.sweep_interval = '1h'",
	'synchronous_commit = off', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ledger (n int);
CREATE FUNCTION note(p jsonb) RETURNS void LANGUAGE sql AS $$
  INSERT INTO public.ledger VALUES ((p->>'n')::int)
$$;
SELECT jobq.create_job_type(name, 'note(jsonb)') FROM unnest('{a,b,c}'::text[]) name;
CREATE PROCEDURE fails_after(low int, high int) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM jobq.enqueue('b', jsonb_build_object('n', n)) FROM generate_series(low, high) n;
  RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN NULL;
END $$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# ---------- the actions of the sessions, and the expected results ----------

seed();
my $next = 0;
my %expected;

sub numbers
{
	my ($n) = @_;
	my @numbers = map { $next++ } 1 .. $n;

	return @numbers;
}

sub one
{
	my ($n) = @_;
	my $type = (qw(a b c))[ $n % 3 ];
	my $priority = $n % 7 ? 'NULL' : $n % 5 - 2;

	return "SELECT jobq.enqueue('$type', '{\"n\": $n}', priority => $priority);";
}

sub many
{
	my (@n) = @_;

	return "SELECT count(*) FROM jobq.enqueue_many('c', "
	  . "(SELECT array_agg(jsonb_build_object('n', n)) FROM generate_series($n[0], $n[-1]) n));";
}

sub committed { $expected{$_} = 1 foreach @_; return; }

# A transaction of $n jobs that ends with $end; a third of its jobs in savepoints, of which half go.
sub transaction
{
	my ($n, $end, $commits) = @_;
	my @sql = ('BEGIN;');

	while ($n > 0)
	{
		my $kind = int rand 6;
		my @n = numbers($n < 5 ? $n : 1 + int rand 5);

		$n -= @n;
		if ($kind < 2)
		{
			my $back = $kind == 0;

			push @sql, 'SAVEPOINT s;', (map { one($_) } @n), $back ? 'ROLLBACK TO s;' : (), 'RELEASE s;';
			committed(@n) if $commits && !$back;
		}
		else
		{
			push @sql, $kind == 2 ? many(@n) : map { one($_) } @n;
			committed(@n) if $commits;
		}
	}
	return (@sql, $end);
}

sub script_of
{
	my ($session) = @_;
	my $stop = $next + PER_SESSION;
	my (@sql, @prepared);

	while ($next < $stop)
	{
		my $kind = int rand 12;
		my $left = $stop - $next;
		my $size = 1 + int rand 30;

		$size = $left if $size > $left;
		if ($kind < 4)
		{
			my ($n) = numbers(1);
			push @sql, one($n);
			committed($n);
		}
		elsif ($kind < 7) { push @sql, transaction($size, 'COMMIT;', 1); }
		elsif ($kind < 9) { push @sql, transaction($size, 'ROLLBACK;', 0); }
		elsif ($kind == 9)
		{
			my @n = numbers($left < 200 ? $left : 200);
			push @sql, many(@n);
			committed(@n);
		}
		elsif ($kind == 10)
		{
			my @n = numbers($size);
			push @sql, "CALL fails_after($n[0], $n[-1]);";
		}
		else
		{
			my $commits = int rand 2;
			my $name = sprintf "'p%d-%d'", $session, $next;

			push @sql, transaction($size, "PREPARE TRANSACTION $name;", $commits);
			push @prepared, ($commits ? 'COMMIT' : 'ROLLBACK') . " PREPARED $name;";
		}
		# some are decided soon, some long after
		push @sql, splice @prepared, int rand @prepared, 1 if @prepared > 6 || (@prepared && rand() < 0.2);
	}
	return join "\n", @sql, @prepared, '';
}

# ---------- the run ----------

my @open;
foreach my $i (1 .. OPEN)
{
	my $session = $node->background_psql('postgres');
	my @n = numbers(40 * $i);

	$session->query_safe('BEGIN');
	$session->query_safe(one($_)) foreach @n[ 0 .. $i * 4 ];
	$session->query_safe(many(@n[ $i * 4 + 1 .. $#n ]));
	push @open, [ $session, $i % 2, \@n ];
}

my $dir = PostgreSQL::Test::Utils::tempdir();
my @psql;
foreach my $i (1 .. SESSIONS)
{
	my $file = "$dir/$i.sql";

	append_to_file($file, "\\set ON_ERROR_STOP 1\n\\o /dev/null\nSET client_min_messages = error;\n" . script_of($i));
	push @psql, IPC::Run::start([ 'psql', '-X', '-q', '-f', $file, '-d', $node->connstr('postgres') ],
		'>', "$dir/$i.out", '2>', "$dir/$i.err");
}
ok($_->finish, 'a session has done its part') or diag map { slurp_file($_) } glob "$dir/*.err" foreach @psql;

# by now older than all cursors
foreach my $open (@open)
{
	my ($session, $commits, $n) = @$open;

	$session->query_safe($commits ? 'COMMIT' : 'ROLLBACK');
	committed(@$n) if $commits;
	$session->quit;
}
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'every job has run');

# ---------- comparing ----------

my $count = keys %expected;
cmp_ok($next, '>=', 50_000, "$next jobs were enqueued");
note "$count of them were committed";
append_to_file("$dir/expected", join '', map { "$_\n" } keys %expected);
$node->safe_psql('postgres', "CREATE TABLE expected (n int); COPY expected FROM '$dir/expected'");
is($node->safe_psql('postgres', 'SELECT count(*) FROM ledger'), $count, 'as many ran as were committed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT n FROM ledger EXCEPT SELECT n FROM expected) x'),
	0, 'none that was rolled back');
is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT n FROM expected EXCEPT SELECT n FROM ledger) x'),
	0, 'all that were committed');
is($node->safe_psql('postgres', "SELECT string_agg(status || ' ' || count, ', ') FROM jobq.count_by_status() WHERE count > 0"),
	"completed $count", 'jobq counts the same');
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.jobs WHERE attempts <> 1 OR runs <> 1'), 0,
	'each in one attempt');
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'), 0, 'no transaction is left over');

# ---------- jobs that can't start wake no process, and still start later ----------

sub naps
{
	my ($pid) = jobq_pids($node, 'dispatcher');

	return slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : die 'no such line';
}

$node->safe_psql('postgres', "TRUNCATE ledger; SELECT jobq.pause_job_type('a'); SELECT jobq.enqueue('a', '{\"n\": 0}')");
my $naps = naps();
$node->safe_psql('postgres', q{DO $$ BEGIN FOR n IN 1..5000 LOOP PERFORM jobq.enqueue('a', jsonb_build_object('n', n)); COMMIT; END LOOP; END $$});
$naps = naps() - $naps;
cmp_ok($naps, '<', 500, "5000 commits of a paused type wake the dispatcher seldom ($naps times)");
is($node->safe_psql('postgres', 'SELECT count(*) FROM ledger'), 0, 'nothing of it runs');
$node->safe_psql('postgres', "SELECT jobq.resume_job_type('a')");
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'until it is resumed');
is($node->safe_psql('postgres', 'SELECT count(*) || \' \' || count(DISTINCT n) FROM ledger'), '5001 5001', '!each has run once');
$node->stop;
done_testing();
