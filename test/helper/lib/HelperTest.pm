package HelperTest;

# Starts the real jobq-helper and speaks its protocol (src/helper/PROTOCOL.md) from the other end.
#
#   my $h = HelperTest->new(%options);
#   $h->start(7, argv => ['/bin/true']);
#   my $exit = $h->exit_of(7);

use strict;
use warnings;

use Cwd ();
use Fcntl qw(:DEFAULT :flock);
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use IO::Handle;
use POSIX ();
use Scalar::Util qw(weaken);
use Socket;
use Time::HiRes qw(time);

use Exporter 'import';
our @EXPORT = qw($HELPER $TOOL $HANG wait_until alive processes_with scale);

my $home = Cwd::abs_path(dirname(__FILE__) . '/..');
my $build = $ENV{JOBQ_HELPER_BUILD} || "$home/build";
our $HELPER = $ENV{JOBQ_HELPER} || "$build/jobq-helper";
our $TOOL = "$build/tool";
our $HANG = "$build/hang";

build();

our $VERSION = 2;
my %TYPE = (HELLO => 1, START => 2, CANCEL => 3, SHUTDOWN => 4, STARTED => 5, EVENT => 6, EXIT => 7, PING => 8, PONG => 9);
our @OUTPUT = qw(json text none);
our %REASON = (cancel => 1, shutdown => 2, timeout => 3);
our @KIND = (undef, qw(exited signalled start_failed timeout cancelled shutdown answered output_limit stalled));
our @LIMIT = ('', qw(memory cpu files));
our @EVENT = (undef, qw(progress log artifact stderr));
our @VERDICT = qw(ok empty bad_json not_utf8 nul truncated too_deep no_answer);

# The first test builds the programs that the tests need.
sub build
{
	return if $ENV{JOBQ_HELPER_BUILD} && -x $HANG;
	mkdir $build;
	open(my $lock, '>', "$build/lock") or die "$build/lock: $!";
	flock($lock, LOCK_EX);
	my @san = is_sanitized() ? ('SAN=1') : ();
	my $log = `make -s -C '$home' BUILD='$build' all @san 2>&1`;
	die "could not build the helper's tests:\n$log" if $? != 0;
	return;
}

sub is_sanitized
{
	open(my $f, '<:raw', $HELPER) or return 0;
	local $/;
	return index(<$f>, '__asan_init') >= 0;
}

sub unit_tests { return sort glob "$build/test_*"; }

# A figure for loops: all of it, or the share JOBQ_TEST_SCALE (0..1).
sub scale { my ($n) = @_; my $s = int($n * ($ENV{JOBQ_TEST_SCALE} // 1)); return $s < 1 ? 1 : $s; }

# Timeouts of waits allow for a machine that stands still for a while.
sub wait_until
{
	my ($condition, $seconds) = @_;
	my $end = time() + ($seconds // 90);
	my $result;
	until ($result = $condition->())
	{
		return $result if time() > $end;
		select(undef, undef, undef, 0.005);
	}
	return $result;
}

# True if the process runs and is no zombie.
sub alive
{
	my ($pid) = @_;
	open(my $f, '<', "/proc/$pid/stat") or return 0;
	my $line = <$f> // '';
	return $line =~ /\) ([A-Z])/ && $1 ne 'Z' && $1 ne 'X';
}

# Returns the processes with the mark in their command line.
sub processes_with
{
	my ($mark) = @_;
	my @found;
	for my $dir (glob '/proc/[0-9]*')
	{
		open(my $f, '<', "$dir/cmdline") or next;
		local $/;
		my $line = <$f> // '';
		my ($pid) = $dir =~ /(\d+)$/;
		push @found, $pid if index($line, $mark) >= 0 && $pid != $$ && alive($pid);
	}
	return @found;
}

# Helpers exit before File::Temp removes their directories.
my %living;
END { my $status = $?; $_ && $_->DESTROY for values %living; $? = $status; }

# options: workdir, max_frame, prepare (code run in the child before exec), args, hello (0: send
# none), under (a program with arguments that executes the helper)
sub new
{
	my ($class, %o) = @_;
	my $self = bless { buffer => '', frames => [], next => 100_000, %o }, $class;
	$self->{workdir} //= tempdir(CLEANUP => 1) . '/work';
	socketpair(my $mine, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die "socketpair: $!";
	my $parent = $$;
	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		$o{prepare}->() if $o{prepare};
		close $mine;
		$ENV{ASAN_OPTIONS} = 'detect_leaks=0:exitcode=86';	# leaks are looked for by a tracer, which the helper forbids
		fileno($theirs) == 3 ? fcntl($theirs, F_SETFD, 0) : POSIX::dup2(fileno($theirs), 3);
		POSIX::dup2(POSIX::open($o{log}, O_WRONLY | O_CREAT | O_APPEND), 2) if $o{log};
		my @args = @{ $o{args} // ["--parent-pid=$parent"] };
		exec(@{ $o{under} }, $HELPER, @args) if $o{under};
		exec { $HELPER } 'jobq-helper', @args or POSIX::_exit(99);
	}
	close $theirs;
	@$self{qw(pid sock)} = ($pid, $mine);
	weaken($living{$pid} = $self);
	$self->hello unless defined $o{hello} && !$o{hello};
	return $self;
}

sub text { my ($s) = @_; return pack('L<a*', length $s, $s); }
sub list { my @items = @_; my $all = join('', map { "$_\0" } @items); return pack('L<L<a*', scalar @items, length $all, $all); }

sub send_raw
{
	my ($self, $bytes) = @_;
	while (length $bytes)
	{
		my ($r, $w) = ('', '');
		vec($r, fileno($self->{sock}), 1) = 1;
		$w = $r;
		select($r, $w, undef, 90) or die 'the helper does not read';
		$self->pull if vec($r, fileno($self->{sock}), 1);
		next unless vec($w, fileno($self->{sock}), 1);
		my $n = send($self->{sock}, $bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		next if !defined $n && $!{EAGAIN};
		return 0 unless defined $n;
		substr($bytes, 0, $n, '');
	}
	return 1;
}

sub send_frame
{
	my ($self, $type, $body) = @_;
	return $self->send_raw(pack('L<CC', length($body) + 2, $VERSION, $TYPE{$type}) . $body);
}

sub hello
{
	my ($self) = @_;
	$self->send_frame('HELLO', pack('L<L<L<', $self->{max_frame} // 0, 0, $$) . text($self->{workdir}));
	my $answer = $self->expect(sub { $_[0]{type} eq 'HELLO' });
	$self->{answer} = $answer;
	$self->{helper_pid} = $answer->{pid} if $answer;
	return $answer;
}

sub start
{
	my ($self, $job, %o) = @_;
	my %kinds = (json => 0, text => 1, none => 2);
	return $self->send_frame('START',
		pack('Q<', $job) . list(@{ $o{argv} }) . list(@{ $o{env} // ['PATH=/usr/bin:/bin', 'LANG=C.UTF-8'] })
		. text($o{tool_path} // '/usr/local/bin:/usr/bin:/bin') . text($o{stdin} // '{}')
		. pack('Q<Q<Q<L<L<L<L<', int(($o{timeout} // 0) * 1e6), int(($o{grace} // 5) * 1e6), $o{memory_max} // 0,
			$o{max_output} // 1 << 20, $o{stderr_tail} // 8192, $o{nofile} // 256, $o{log_lines} // 0)
		. pack('L<CL<L<Q<Q<Q<', $o{cpu_seconds} // 0, $kinds{ $o{output} // 'text' }, $o{warm} // 0, $o{warm_max_jobs} // 0,
			$o{warm_memory} // 0, int(($o{warm_idle} // 600) * 1e6), $o{pool} // 1) . text($o{id} // '')
		. pack('Q<', int(($o{stall} // 0) * 1e6)));
}

sub cancel
{
	my ($self, $job, $reason, $grace) = @_;
	return $self->send_frame('CANCEL', pack('Q<Q<C', $job, int(($grace // 5) * 1e6), $REASON{$reason // 'cancel'}));
}

sub ping { my ($self) = @_; return $self->send_frame('PING', ''); }
sub shutdown { my ($self, $grace) = @_; return $self->send_frame('SHUTDOWN', pack('Q<', int(($grace // 5) * 1e6))); }

# Reads once; false at end of file.
sub pull
{
	my ($self) = @_;
	my $got = sysread($self->{sock}, $self->{buffer}, 1 << 18, length $self->{buffer});
	$self->{eof} = 1 unless $got;
	while (length $self->{buffer} >= 4)
	{
		my $len = unpack('L<', $self->{buffer});
		last if length $self->{buffer} < 4 + $len;
		my $body = substr($self->{buffer}, 4, $len);
		substr($self->{buffer}, 0, 4 + $len, '');
		push @{ $self->{frames} }, decode($body);
	}
	return $got;
}

sub decode
{
	my ($body) = @_;
	my ($version, $type) = unpack('CC', $body);
	my ($name) = grep { $TYPE{$_} == $type } keys %TYPE;
	my %f = (type => $name, version => $version);
	$body = substr($body, 2);
	if ($name eq 'HELLO') { @f{qw(max_frame max_jobs pid)} = unpack('L<L<L<', $body); }
	elsif ($name eq 'STARTED') { @f{qw(job pid)} = unpack('Q<L<', $body); }
	elsif ($name eq 'EVENT')
	{
		@f{qw(job kind text)} = unpack('Q<CL</a', $body);
		$f{kind} = $EVENT[ $f{kind} ];
	}
	elsif ($name eq 'EXIT')
	{
		@f{qw(job duration utime stime maxrss stdout_bytes stderr_bytes value left bad_lines kind verdict limit output stderr message error)} =
		  unpack('Q<Q<Q<Q<Q<Q<Q<l<L<L<CCCL</aL</aL</aL</a', $body);
		$f{kind} = $KIND[ $f{kind} ];
		$f{verdict} = $VERDICT[ $f{verdict} ];
		$f{limit} = $LIMIT[ $f{limit} ];
	}
	return \%f;
}

# Returns the first frame that meets the condition; others stay for later. undef: none came.
sub expect
{
	my ($self, $condition, $seconds) = @_;
	my $end = time() + ($seconds // 90);
	for (;;)
	{
		my $frames = $self->{frames};
		for my $i (0 .. $#$frames)
		{
			return splice(@$frames, $i, 1) if $condition->($frames->[$i]);
		}
		my $left = $end - time();
		return undef if $self->{eof};
		my $r = '';
		vec($r, fileno($self->{sock}), 1) = 1;
		# also without any time: what is there is read
		if (select($r, undef, undef, $left > 0 ? $left : 0))
		{
			$self->pull;
		}
		elsif ($left <= 0)
		{
			return undef;
		}
	}
}

sub exit_of { my ($self, $job, $seconds) = @_; return $self->expect(sub { $_[0]{type} eq 'EXIT' && $_[0]{job} == $job }, $seconds); }
sub started { my ($self, $job, $seconds) = @_; return $self->expect(sub { $_[0]{type} eq 'STARTED' && $_[0]{job} == $job }, $seconds); }
sub pong { my ($self, $seconds) = @_; return $self->expect(sub { $_[0]{type} eq 'PONG' }, $seconds); }
sub event { my ($self, $job, $seconds) = @_; return $self->expect(sub { $_[0]{type} eq 'EVENT' && $_[0]{job} == $job }, $seconds); }

sub run
{
	my ($self, %o) = @_;
	my $job = $self->{next}++;
	$self->start($job, %o);
	return $self->exit_of($job, $o{wait});
}

# Waits for the helper to exit, and returns its wait status; undef: it did not exit.
sub reap
{
	my ($self, $seconds) = @_;
	my $status;
	wait_until(sub { waitpid($self->{pid}, POSIX::WNOHANG()) == $self->{pid} and $status = $? // 0; defined $status }, $seconds);
	delete $self->{pid} if defined $status;
	return $status;
}

sub hang_up { my ($self) = @_; close delete $self->{sock} if $self->{sock}; return; }

sub DESTROY
{
	my ($self) = @_;
	local ($?, $!);
	return unless $self->{pid} && $self->{sock};
	delete $living{ $self->{pid} };
	$self->hang_up;
	return if defined $self->reap(30);
	kill 'KILL', $self->{pid};
	waitpid $self->{pid}, 0;
	return;
}

1;
