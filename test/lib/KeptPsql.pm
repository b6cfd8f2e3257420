# SQL of the tests through psql programs that stay: one for each node and database, instead of one
# for each call.  A call has the output, the errors and the exit code of its own psql: the kept one
# includes its text as a file named "<stdin>".  Afterwards the session is as new: DISCARD ALL, and
# statistics are sent as at the end of a session.
#
# Texts that need a psql of their own, or that change what a session gets when it begins, still have
# one (own_psql).
package KeptPsql;

use strict;
use warnings;

use IO::Handle;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More ();
use Time::HiRes qw(time usleep);

use constant { SECONDS => 300, SESSIONS_OF_NODE => 2 };

my %sessions;    # by node, database and environment
my $calls = 0;
my $all_fresh = 0;
my $owner = $$;
my $directory;    # of "<stdin>"
my %theirs;

# Changes what a session has from its beginning, or needs a database without sessions.
my $changes_sessions = qr/\b(?:CREATE|ALTER|DROP)\s+(?:DATABASE|EXTENSION|TABLESPACE|ROLE|USER|GROUP)\b|\bDROP\s+OWNED\b
	|\bALTER\s+SYSTEM\b|\bpg_reload_conf\b|\bpg_promote\b|^\s*LOAD\b/xim;

# Shows the session, or leaves something that DISCARD ALL does not remove.
my $needs_own = qr/(?<!<>\s)\bpg_backend_pid\b|\bset_config\b|\bpg_export_snapshot\b
	|\bSET\s+(?:SESSION\s+)?(?!jobq\b)\w+\.\w+\s*(?:=|TO\b)/xi;

# From now on each call of this file, or with this node, has a psql of its own.
sub fresh_sessions
{
	my ($node) = @_;

	if ($node) { $node->{fresh_sessions} = 1; }
	else { $all_fresh = 1; }
	disconnect($node);
	return;
}

# True if the call must have a psql of its own.
sub own_psql
{
	my ($node, $sql, %params) = @_;
	my @extra = @{ delete $params{extra_params} // [] };

	return 1 if $all_fresh || $node->{fresh_sessions} || !defined $sql || $$ != $owner;
	return 1 if grep { !/^(?:stdout|stderr|on_error_stop|on_error_die)$/ } keys %params;
	return 1 if @extra && !(@extra == 2 && $extra[0] eq '-v' && $extra[1] =~ /^VERBOSITY=\w+$/);
	return 1 if $sql =~ $needs_own || $sql =~ $changes_sessions;
	my $code = $sql =~ s/\$(\w*)\$.*?\$\1\$|'[^']*'|"[^"]*"|--[^\n]*//gsr;
	return 1 if $code =~ /\\/;
	return $code =~ /(?:^|;)\s*(?:BEGIN|START)\b/i && $code !~ /\b(?:COMMIT|ROLLBACK|END|PREPARE\s+TRANSACTION)\s*;?\s*\z/i;
}

# As theirs.
sub psql
{
	my ($node, $dbname, $sql, %params) = @_;
	my $captured = wantarray || (ref $params{stdout} && ref $params{stderr});

	if (!$captured || own_psql($node, $sql, %params))
	{
		disconnect($node) if defined $sql && $sql =~ $changes_sessions;
		return $theirs{psql}->(@_);
	}
	my $verbosity = $params{extra_params} ? $params{extra_params}[1] =~ s/.*=//r : 'default';
	my ($rc, $out, $err) = ask($node, $dbname, $sql, $params{on_error_stop} // 1, $verbosity);

	chomp($out, $err);
	${ $params{stdout} } = $out if ref $params{stdout};
	${ $params{stderr} } = $err if ref $params{stderr};
	if ($rc && $params{on_error_die})
	{
		my $command = "while running 'psql -XAtq -d " . $node->connstr($dbname) . " -f -'";

		die "connection error: '$err'\n$command" if $rc == 2;
		die "error running SQL: '$err'\n$command with sql '$sql'";
	}
	return wantarray ? ($rc, $out, $err) : $rc;
}

# As theirs, but no call lasts longer than SECONDS.
sub safe_psql
{
	my ($node, $dbname, $sql, %params) = @_;

	return $theirs{safe_psql}->($node, $dbname, $sql, timeout => SECONDS, %params) if own_psql($node, $sql, %params);
	return $theirs{safe_psql}->(@_);
}

# A file in which a wait was in vain has failed: its other waits are short.
my $in_vain = 0;

# As theirs, but the first looks follow sooner; a stalled machine has 300 s, as 900 psqls may have
# there.
sub poll_query_until
{
	my ($node, $dbname, $query, $expected) = @_;
	my $until = time + $PostgreSQL::Test::Utils::timeout_default * 10 / ($in_vain ? 30 : 3);
	my ($out, $err);

	$expected //= 't';
	for (my $looks = 0; !$looks || time < $until; $looks++)
	{
		(undef, $out, $err) = ask($node, $dbname, $query, 0, 'default');
		chomp($out, $err);
		return 1 if $out eq $expected && $err eq '';
		usleep($looks < 3 ? 20_000 : 100_000);
	}
	$in_vain = 1;
	Test::More::diag("poll_query_until timed out executing this query:\n$query\nexpecting this output:\n$expected\n"
		  . "last actual query output:\n$out\nwith stderr:\n$err");
	return 0;
}

# Runs the text; returns psql's exit code and outputs.  A text that may have reached the server is
# not sent again.
sub ask
{
	my ($node, $dbname, $sql, $stop, $verbosity) = @_;

	for (;;)
	{
		my ($session, $new) = session_of($node, $dbname);
		my ($rc, $out, $err, $sent) = talk($session, $sql, $stop, $verbosity);

		return ($rc, $out, $err) if $sent || $new;
	}
}

# Returns the session, and whether it is new.
sub session_of
{
	my ($node, $dbname) = @_;
	local %ENV = $node->_get_env();
	my $of_node = join "\0", $node->name, $node->connstr;
	my $key = join "\0", $of_node, $dbname, map { "$_=$ENV{$_}" } grep { /^(?:PG|LC_|LANG|TZ)/ } sort keys %ENV;
	my $session = $sessions{$key};
	my $new = !$session;

	if ($new)
	{
		my @others = sort { $a->{used} <=> $b->{used} } grep { $_->{of_node} eq $of_node } values %sessions;

		close_session(shift @others) while @others >= SESSIONS_OF_NODE;
		$session = start_psql($node->installed_command('psql'), '-XAtq', '-d', $node->connstr($dbname), '-f', '-');
		@$session{qw(key of_node)} = ($key, $of_node);
		$sessions{$key} = $session;
	}
	$session->{used} = ++$calls;
	return ($session, $new);
}

# Starts the program in the directory where "<stdin>" will be.
sub start_psql
{
	my @command = @_;
	my %session = (ended => 0, busy => 0, status => 0);

	$directory //= PostgreSQL::Test::Utils::tempdir('psql');
	pipe(my $in, $session{in}) && pipe($session{out}, my $out) && pipe($session{err}, my $err) or die "pipe: $!";
	$session{in}->autoflush(1);
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		chdir $directory;
		POSIX::dup2(fileno $in, 0);
		POSIX::dup2(fileno $out, 1);
		POSIX::dup2(fileno $err, 2);
		exec { $command[0] } @command or POSIX::_exit(127);
	}
	$session{pid} = $pid;
	return \%session;
}

# Sends a text and reads the answer; returns psql's exit code, the outputs, and whether the text may
# have reached the server.  Marks in both outputs show where the text's own begin and end, and that
# the session is as new.
sub talk
{
	my ($session, $sql, $stop, $verbosity) = @_;
	my $mark = "kept psql $$." . ++$calls;
	my $mark_both = sub { return "\\echo '$mark $_[0]' :ERROR\n\\warn '$mark $_[0]'\n"; };
	# DISCARD ALL would fail in an open block, and the server's log would have an error
	my $end_after_error = $sql =~ /\b(?:BEGIN|START)\b/i ? "\\if :ERROR\n\\q\n\\endif\n" : '';

	write_text($sql);
	$session->{busy} = 1;
	send_lines($session, "SELECT 1 \\g /dev/null\n", $mark_both->('begins'), "\\set VERBOSITY $verbosity\n",
		"\\set ON_ERROR_STOP $stop \\\\ \\i '<stdin>'\n\\set ON_ERROR_STOP 0\n", $mark_both->('ended'), "\\set VERBOSITY default\n",
		$end_after_error, "DISCARD ALL;\n", $mark_both->('as new'), "SELECT pg_stat_force_next_flush() \\g /dev/null\n",
		$mark_both->('ready'));
	my ($out, $err) = read_both($session, qr/^\Q$mark\E ready.*\n/m, $sql);
	$session->{busy} = 0;
	my $sent = $out =~ s/\A.*?^\Q$mark\E begins \w+\n//ms;
	my ($failed, $rest) = $out =~ s/^\Q$mark\E ended (\w+)\n(.*)\z//ms ? ($1, $2) : (undef, '');

	$err =~ s/\A.*?^\Q$mark\E begins\n//ms;
	$err =~ s/^\Q$mark\E ended\n.*\z//ms;
	# a warning may be one that a session prints only once
	close_session($session) if $err =~ /WARNING/ || $rest !~ /as new false\n.* ready false\n/;
	return ($stop && $failed eq 'true' ? 3 : 0, $out, $err, 1) if defined $failed;
	die "psql exited with signal " . ($session->{status} & 127) . ": '$err' while running '$sql'" if $session->{status} & 127;
	return ($session->{status} >> 8, $out, $err, $sent);
}

sub write_text
{
	my ($sql) = @_;
	my $name = "$directory/<stdin>";

	utf8::encode($sql) unless utf8::downgrade($sql, 1);
	open my $file, '>:raw', $name or die "$name: $!";
	print $file $sql;
	close $file or die "$name: $!";
	return;
}

sub send_lines
{
	my ($session, @lines) = @_;
	# an ended psql takes no input
	local $SIG{PIPE} = 'IGNORE';

	print { $session->{in} } join '', @lines;
	return;
}

# Reads until both outputs have the mark, or psql has ended.
sub read_both
{
	my ($session, $mark, $sql) = @_;
	my $until = time + SECONDS;
	my %text = (out => '', err => '');
	my %open = (out => 1, err => 1);

	while (my @wanted = grep { $open{$_} && $text{$_} !~ $mark } keys %open)
	{
		my $ready = '';

		vec($ready, fileno($session->{$_}), 1) = 1 foreach @wanted;
		if (time > $until)
		{
			close_session($session);
			die "psql timed out after " . SECONDS . " s: stderr: '$text{err}'\nwhile running '$sql'";
		}
		next unless select($ready, undef, undef, 1) > 0;
		foreach my $which (grep { vec $ready, fileno($session->{$_}), 1 } @wanted)
		{
			my $n = sysread $session->{$which}, $text{$which}, 65536, length $text{$which};

			$open{$which} = 0 if defined $n ? $n == 0 : !$!{EINTR};
		}
	}
	if (grep { !$_ } values %open)
	{
		$session->{busy} = 0;
		close_session($session);
	}
	return @text{qw(out err)};
}

# Ends the psql, by SIGKILL if it is busy, and waits for it; its exit status remains.
sub close_session
{
	my ($session) = @_;

	return if $session->{ended};
	$session->{ended} = 1;
	delete $sessions{ $session->{key} };
	if ($session->{busy}) { kill 'KILL', $session->{pid}; }
	else { send_lines($session, "\\q\n"); }
	close $session->{in};
	local $?;
	waitpid $session->{pid}, 0;
	$session->{status} = $?;
	return;
}

# Ends the sessions of a node, or all.
sub disconnect
{
	my ($node) = @_;
	my $of_node = $node ? join("\0", $node->name, $node->connstr) : undef;

	return if $$ != $owner;
	close_session($_) foreach grep { !defined $of_node || $_->{of_node} eq $of_node } values %sessions;
	return;
}

END
{
	local $?;
	disconnect();
}

{
	no strict 'refs';
	no warnings 'redefine';
	my $class = 'PostgreSQL::Test::Cluster';
	my @ends = qw(stop restart reload promote kill9 teardown_node);

	%theirs = map { $_ => \&{"${class}::$_"} } qw(psql safe_psql), @ends;
	*{"${class}::$_"} = \&$_ foreach qw(psql safe_psql);
	foreach my $name (@ends)
	{
		*{"${class}::$name"} = sub { disconnect($_[0]); goto &{ $theirs{$name} }; };
	}
}

1;
