# Compaction's horizon and its limits: portals of the calling session, subtransactions, statistics,
# an owner's ALTER of the table, and the duration of a rewrite.

use strict;
use warnings;

use IO::Socket::UNIX;
use PostgreSQL::Test::Utils;
use ServerTest;
use StandbyTest;
use Test::More;

my $node = jobq_server('exact', 'autovacuum = off', 'fsync = off', 'log_min_messages = debug1', "jobq.compact_threshold = '256MB'");
start_with_paused_type($node);
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION noise(bytes int) RETURNS text LANGUAGE sql AS
  $$ SELECT string_agg(md5(random()::text), '') FROM generate_series(1, bytes / 32) $$;
CREATE FUNCTION live() RETURNS bigint LANGUAGE sql AS
  $$ SELECT n_live_tup FROM pg_stat_all_tables WHERE relid = 'jobq.queue'::regclass $$;
END

sub value { return $node->safe_psql('postgres', $_[0]); }

# The same, and waits until the statistics contain it.
sub counted { return value("$_[0]; SELECT pg_stat_force_next_flush()"); }

# $waits jobs that stay, $gone others that are cancelled; each row version has that size.
sub queue_of
{
	my ($waits, $gone, $bytes) = @_;

	counted("SELECT jobq.cancel_jobs('waits')");
	counted("SELECT count(jobq.enqueue('waits', jsonb_build_object('text', noise($bytes)), tenant => CASE WHEN i > $waits THEN 't' END))"
		  . " FROM generate_series(1, $waits + $gone) i");
	return counted("SELECT jobq.cancel_jobs('waits', 't')") if $gone > 0;
}

# --- a session of the extended protocol

sub message { my ($type, $body) = @_; return $type . pack('N', 4 + length $body) . $body; }

sub bind_portal
{
	my ($portal, $sql) = @_;

	return message('P', "$portal\0$sql\0" . pack('n', 0)) . message('B', "$portal\0$portal\0" . pack('nnn', 0, 0, 0));
}

sub run_portal { my ($portal, $rows) = @_; return message('E', "$portal\0" . pack('N', $rows)); }

sub connect_raw
{
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or die "no connection: $!";
	my $user = value('SELECT current_user');
	my $start = pack('N', 196608) . "user\0$user\0database\0postgres\0\0";

	$socket->syswrite(pack('N', 4 + length $start) . $start);
	answers($socket, 'Z');
	return $socket;
}

# Returns the types of the messages up to the first of the given type.
sub answers
{
	my ($socket, $until) = @_;
	my $seen = '';

	while ($seen !~ /[$until]$/)
	{
		$socket->read(my $head, 5) == 5 or die "the server has closed the connection after $seen";
		my ($type, $length) = unpack('aN', $head);
		$socket->read(my $body, $length - 4);
		die "error: $body" if $type eq 'E';
		$seen .= $type;
	}
	return $seen;
}

sub count_rows { return scalar(() = $_[0] =~ /D/g); }

foreach my $executed (1, 0)
{
	my $what = $executed ? 'a suspended portal' : 'a portal that is bound';

	queue_of(1000, 1000, 32);
	value("SELECT count(jobq.enqueue('waits', tenant => 'u')) FROM generate_series(1, 1000)");
	my $rows = value('SELECT count(*) FROM jobq.queue');
	my $socket = connect_raw();
	$socket->syswrite(bind_portal('reader', 'SELECT id FROM jobq.queue') . ($executed ? run_portal('reader', 1) : '') . message('H', ''));
	my $first = answers($socket, $executed ? 's' : '2');
	value("SELECT jobq.cancel_jobs('waits', 'u')");
	$socket->syswrite(bind_portal('', 'SELECT jobq.compact()') . run_portal('', 0) . message('H', ''));
	answers($socket, 'C');
	$socket->syswrite(run_portal('reader', 0) . message('S', ''));
	is(count_rows($first . answers($socket, 'Z')), $rows, "$what of the session that calls compact() gets each row of its snapshot");
	$socket->close;
}

# --- over 64 subtransactions

value('SELECT jobq.compact()');
my $holder = session($node, 'BEGIN; SELECT subtransactions(100)');
queue_of(100, 500, 32);
my $offset = -s $node->logfile;
value('SELECT jobq.compact()');
like(slurp_file($node->logfile, $offset), qr/jobq compaction: swept, [1-9]\d\d+ dead rows removed/,
	'100 subtransactions of an idle transaction keep no dead row');
sound($node, '100 subtransactions');

# Rows that one of them deletes are seen by a snapshot that was taken before it commits.
my $rows = value('SELECT count(*) FROM jobq.queue');
$holder->query('SAVEPOINT s');
$holder->query("DELETE FROM jobq.queue WHERE id IN (SELECT id FROM jobq.queue LIMIT 50)");
$holder->query('RELEASE s');
value('SELECT jobq.compact()');		# while it runs
my $reader = session($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
is($reader->query('SELECT count(*) FROM jobq.queue'), $rows, 'a snapshot sees rows that a subtransaction has deleted');
$holder->query('COMMIT');
$holder->quit;
value('SELECT jobq.compact()');
value('SELECT jobq.compact()');
is($reader->query('SELECT count(*) FROM jobq.queue'), $rows, 'and does so after compaction');
is(value('SELECT count(*) FROM jobq.queue'), $rows - 50, 'later ones do not');
$reader->quit;

# --- statistics

queue_of(3000, 0, 32);
value('SELECT jobq.compact()');
value('VACUUM jobq.queue');
counted("SELECT count(jobq.enqueue('waits', tenant => 't')) FROM generate_series(1, 1000)");
counted("SELECT jobq.cancel_jobs('waits', 't')");
value('SELECT jobq.compact()');
my $live = value('SELECT live()');
cmp_ok(abs($live - 3000), '<', 100, "n_live_tup is true beside pages that are all visible: $live of 3000");
$reader = session($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.queue');
counted("SELECT count(jobq.alter_job(id, payload => '{\"round\": $_}')) FROM jobq.jobs") foreach 1 .. 2;
value('SELECT jobq.compact()');
$live = value('SELECT live()');
cmp_ok(abs($live - 3000), '<', 100, "beside versions that a snapshot still sees: $live of 3000");
$reader->quit;
my $writer = session($node, "BEGIN; SELECT count(jobq.enqueue('waits')) FROM generate_series(1, 1000)");
value('SELECT jobq.compact()');
$live = value('SELECT live()');
cmp_ok(abs($live - 3000), '<', 100, "beside jobs that are being enqueued: $live of 3000");
$writer->query('COMMIT');
$writer->quit;
wait_for_sql($node, 'SELECT abs(live() - 4000) < 100', 'which count when they are');

# --- another index on the ids, another access method

my $file = "SELECT pg_relation_filenode('jobq.queue')";
my $before = value($file);
value('CREATE INDEX by_hash ON jobq.queue USING hash (id)');
value('CREATE INDEX by_range ON jobq.queue USING brin (id)');
value('SELECT jobq.compact()');
isnt(value($file), $before, 'the table is rewritten beside other indexes on the ids');
sound($node, 'other indexes');
value('DROP INDEX jobq.by_hash; DROP INDEX jobq.by_range');

value('CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler; ALTER TABLE jobq.queue SET ACCESS METHOD other');
queue_of(100, 500, 32);
$before = value($file);
$offset = -s $node->logfile;
is(value('SELECT jobq.compact()'), 0, 'compact() gives nothing back of a table that is no heap');
is(value($file), $before, 'and does not rewrite it');
unlike(slurp_file($node->logfile, $offset), qr/jobq compaction: swept/, 'nor touches its pages');
value('ALTER TABLE jobq.queue SET ACCESS METHOD heap; DROP ACCESS METHOD other');

# --- a rewrite that would last for long

queue_of(300, 1500, 8000);
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION slowly(id uuid) RETURNS uuid LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  PERFORM pg_catalog.pg_sleep(0.2) FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid() AND backend_type = 'jobq maintenance';
  RETURN id;
END $$;
CREATE INDEX slow ON jobq.queue (public.slowly(id));
ALTER SYSTEM SET jobq.compact_threshold = '1MB';
END
$before = value($file);
$offset = -s $node->logfile;
$node->reload;
my ($longest, $n) = (0, 0);
until (slurp_file($node->logfile, $offset) =~ /jobq rewrite: \d+ bytes given up/ || $n++ > 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	my $took = seconds_of { value("SELECT jobq.enqueue('waits')") };

	$longest = $took if $took > $longest;
	last if value($file) ne $before;
}
cmp_ok($longest, '<', 40, "no enqueue waits for a rewrite of 60 s: $longest s");
is(value($file), $before, 'which is left');
value("SELECT count(jobq.enqueue('waits', tenant => 't')) FROM generate_series(1, 10)");
value("SELECT jobq.cancel_jobs('waits', 't')");
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq maintenance'", 'the run is over');
my @given_up = slurp_file($node->logfile, $offset) =~ /given up/g;
is(scalar @given_up, 1, 'and not tried again at once');
value('DROP INDEX jobq.slow');
my $size = value("SELECT pg_total_relation_size('jobq.queue')");
value('SELECT jobq.compact()');
isnt(value($file), $before, "compact() does it, of $size bytes");
like(slurp_file($node->logfile, $offset), qr/jobq rewrite: \d+ bytes done/, 'and measures it');
sound($node, 'the rewrite');

no_own_errors($node);
$node->stop;
done_testing();
