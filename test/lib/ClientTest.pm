# Workers of a client as processes, their logs as lines of JSON, and a pgbouncer before the server.
package ClientTest;

use strict;
use warnings;

use Exporter 'import';
use JSON::PP;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes ();

our @EXPORT = qw(start_pooler uri start_worker stop_worker end_workers signal_worker exit_of log_lines wait_log open_gate gates
  must wait_sql);

my %processes;    # by pid
my $started = 0;
my $gates = PostgreSQL::Test::Utils::tempdir();

# Starts a program in a process group of its own; its output goes to the file.
sub spawn
{
	my ($command, $env, $output) = @_;
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		setpgrp(0, 0);
		@ENV{ keys %$env } = values %$env;
		open STDIN, '<', '/dev/null';
		open STDERR, '>>', $output;
		open STDOUT, '>&', \*STDERR;
		exec { $command->[0] } @$command or POSIX::_exit(127);
	}
	$processes{$pid} = 1;
	return $pid;
}

# Starts pgbouncer in transaction mode before the node; returns a hash with host, port and pid.
sub start_pooler
{
	my ($node) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $pooler = { host => $dir, port => PostgreSQL::Test::Cluster::get_free_port() };
	my $log = "$PostgreSQL::Test::Utils::log_path/pgbouncer.log";
	my $user = getpwuid($<);

	append_to_file("$dir/pgbouncer.ini", <<"END");
[databases]
* = host=@{[ $node->host ]} port=@{[ $node->port ]} user=$user
[pgbouncer]
unix_socket_dir = $dir
listen_port = $pooler->{port}
listen_addr =
auth_type = any
logfile = $log
pool_mode = transaction
max_client_conn = 500
default_pool_size = 30
server_login_retry = 1
END
	local $ENV{PATH} = "$ENV{PATH}:/usr/sbin";
	$pooler->{pid} = spawn([ 'pgbouncer', '-q', "$dir/pgbouncer.ini" ], {}, "$log.start");
	return $pooler;
}

# Returns the URI of the database through a node or a pooler.
sub uri
{
	my ($where, $name) = @_;
	my ($host, $port) = ref $where eq 'HASH' ? @$where{qw(host port)} : ($where->host, $where->port);

	return "postgresql:///postgres?host=$host&port=$port&user=" . getpwuid($<) . "&application_name=$name";
}

# Starts a worker with options of the contract (in lower case, without JOBQ_); returns it as a hash.
sub start_worker
{
	my ($client, $node, $pooler, $mode, %options) = @_;
	my $name = 'worker' . ++$started;
	my %env = (
		JOBQ_DSN => uri($mode eq 'pooler' ? $pooler : $node, $name),
		JOBQ_LISTEN_DSN => $mode eq 'listen' ? uri($node, $name) : '',
		JOBQ_POOLER => $mode eq 'pooler' ? '1' : '0',
		JOBQ_WORKER => $name,
		JOBQ_DIR => $gates,
		TMPDIR => $gates,
		JOBQ_POLL => $mode eq 'listen' ? 60 : 0.1,
		%{ $client->{env} // {} },
		map { ('JOBQ_' . uc($_) => $options{$_}) } keys %options);
	my $file = "$PostgreSQL::Test::Utils::log_path/$client->{name}.$name.log";

	return { pid => spawn($client->{command}, \%env, $file), name => $name, log => $file };
}

# Sends a signal to the worker's process, with a leading "-" to its process group.
sub signal_worker
{
	my ($worker, $signal) = @_;

	return kill $signal, $worker->{pid};
}

# Waits for the end of the worker's process; returns its wait status, -1 after the timeout.
sub exit_of
{
	my ($worker) = @_;

	foreach (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		if (waitpid($worker->{pid}, POSIX::WNOHANG()) == $worker->{pid})
		{
			my $status = $?;
			delete $processes{ $worker->{pid} };
			return $status;
		}
		Time::HiRes::usleep(10_000);
	}
	return -1;
}

# Stops the worker gracefully; tests its exit code.
sub stop_worker
{
	my ($worker) = @_;

	signal_worker($worker, 'TERM');
	my $status = exit_of($worker);
	must(!bad_ends($worker), 'the log has the fields of each end');
	return must($status == 0, "SIGTERM ends the worker with code 0 (wait status $status)");
}

# The lines of ends of jobs that do not have the form of docs/clients.md: these fields and no other,
# each of its type, an outcome that fits the event, and the level of that.
sub bad_ends
{
	my ($worker) = @_;
	my $number = qr/^[0-9]+$/;
	my %form = (ts => qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$/, job_id => qr/^[0-9a-f-]{36}$/, job_type => qr/^\w+$/, attempt => $number,
		duration_ms => $number);
	my %level = (failed => 'warning', lost => 'error');
	my @bad;

	foreach my $end (qw(completed failed skipped snoozed cancelled lost released))
	{
		my %of_end = (%form, event => qr/^job_$end$/, level => $level{$end} // 'info', outcome => $end eq 'failed' ? qr/^(?:retry|error)$/ : qr/^$end$/,
			$end eq 'failed' ? (error => qr/./s) : ());

		foreach my $line (log_lines($worker, "job_$end"))
		{
			push @bad, $line if (grep { ($line->{$_} // '') !~ $of_end{$_} } keys %of_end) || (grep { !$of_end{$_} } keys %$line);
		}
	}
	diag(encode_json($_)) foreach @bad;
	return @bad;
}

# Ends the processes that are left, and their children, without grace; those named stay.
sub end_workers
{
	my %keep = map { $_ => 1 } @_;

	foreach my $pid (grep { !$keep{$_} } keys %processes)
	{
		kill 'KILL', -$pid;
		waitpid($pid, 0);
		delete $processes{$pid};
	}
	return;
}

# The lines of the worker's log that have the event and the fields; lines
# that are not JSON do not count.
sub log_lines
{
	my ($worker, $event, %fields) = @_;
	my @lines;

	foreach (split /\n/, -e $worker->{log} ? slurp_file($worker->{log}) : '')
	{
		my $line = /"\Q$event\E"/ ? eval { decode_json($_) } : undef;

		next unless ref $line eq 'HASH' && ($line->{event} // '') eq $event;
		push @lines, $line unless grep { ($line->{$_} // '') ne $fields{$_} } keys %fields;
	}
	return @lines;
}

# Waits until the worker's log has such a line.
sub wait_log
{
	my ($worker, $event, %fields) = @_;
	my $what = join ' ', "the log has $event", map { "$_ $fields{$_}" } sort grep { $_ ne 'job_id' } keys %fields;

	foreach (1 .. 50 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return must(1, $what) if log_lines($worker, $event, %fields);
		Time::HiRes::usleep(20_000);
	}
	return must(0, $what);
}

# A test that ends its scenario when it fails, because the next steps depend on it.  The name begins
# with the scenario, or with the ! that $what begins with.
sub must
{
	my ($true, $what) = @_;
	my $mark = $what =~ s/^!// ? '!' : '';

	ok($true, "$mark$main::scenario: $what") or die "ended\n";
	return 1;
}

# Waits until the query of one boolean is true.
sub wait_sql
{
	my ($node, $query, $what) = @_;

	return must($node->poll_query_until('postgres', $query), $what // $query);
}

# Lets a job of type slow go on.
sub open_gate { return append_to_file("$gates/$_[0]", ''); }

sub gates { return $gates; }

END
{
	my $code = $?;

	end_workers();
	$? = $code;
}

1;
