# The Python client without a worker of the suite: its package, its connection, the rhythm of its
# heartbeats.

use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $top = "$FindBin::Bin/../..";
my $python = '/usr/bin/python3';
my $dir = PostgreSQL::Test::Utils::tempdir();

# Runs a program with the client in its path; returns its output.
sub output_of
{
	my ($path, $program, @arguments) = @_;

	local $ENV{PYTHONPATH} = $path;
	local $ENV{PYTHONDONTWRITEBYTECODE} = 1;
	my ($out, $err) = run_command([ $python, '-c', $program, @arguments ]);
	diag($err) if $err;
	return $out;
}

# The package has every module: a wheel of this directory, installed without a registry into a
# virtual environment.  A missing package of Python is a failure in the full run.
my @modules = sort map { s{.*/}{}r } glob("$top/clients/python/jobq/*");
@modules = grep { !/^__pycache__$/ } @modules;
SKIP:
{
	skip 'pip, setuptools, wheel or venv is missing', 5
	  unless $ENV{JOBQ_FULL} || run_log([ $python, '-c', 'import setuptools, wheel, pip, venv' ]);
	my @quiet = ('--quiet', '--no-index', '--no-deps', '--no-cache-dir', '--disable-pip-version-check');
	system_or_bail('cp', '-r', "$top/clients/python", "$dir/source");
	ok(run_log([ $python, '-m', 'pip', 'wheel', @quiet, '--no-build-isolation', '-w', $dir, "$dir/source" ]), 'pip builds a wheel');
	ok(run_log([ $python, '-m', 'venv', '--without-pip', '--system-site-packages', "$dir/venv" ]), 'a virtual environment');
	ok(run_log([ $python, '-m', 'pip', '--python', "$dir/venv/bin/python", 'install', @quiet, glob("$dir/jobq-*.whl") ]), 'pip installs the wheel');
	my ($installed) = glob("$dir/venv/lib/python*/site-packages/jobq");
	is_deeply([ sort grep { !/^__pycache__$/ } map { s{.*/}{}r } glob("$installed/*") ], \@modules, 'with all its files');
	my ($imported) = run_command([ "$dir/venv/bin/python", '-I', '-c', 'import jobq; print(jobq.__file__); print(*sorted(jobq.__all__))' ]);
	is($imported, "$installed/__init__.py\nJob LeaseLost Permanent Retry Skip Snooze Stopped Worker enqueue enqueue_many json_lines",
		'it is imported from there');
}
my $project = slurp_file("$top/clients/python/pyproject.toml");
like($project, qr/^packages = \["jobq"\]$/m, 'pyproject.toml names the package');
like($project, qr/^jobq = \["py\.typed"\]$/m, 'and its data');
is(scalar(grep { !/\.py$|^py\.typed$/ } @modules), 0, 'there are no other files');
is(output_of("$top/clients/python", <<'END'), '[]', "the types name all of enqueue's options");
from jobq.enqueue import _OPTIONS, Options
print(sorted(set(Options.__annotations__) ^ {*_OPTIONS, "traceparent"}))
END

is(output_of("$top/clients/python", <<'END'), join("\n", map { "payloads is a $_, no list of payloads" } qw(str dict)), 'payloads are a list');
from jobq import enqueue_many
for payloads in ["text", {"to": "ada"}]:
    try:
        enqueue_many(None, "mail", payloads)
    except TypeError as error:
        print(error)
END

# Heartbeats that nothing waits for: ten in a second at most, in the order of the ids.
my @beats = split /\n/, output_of("$top/clients/python", <<'END');
import asyncio, time, uuid
from jobq.heartbeat import Heart
from jobq.job import Job

class Link:
    calls = []
    async def query(self, sql, values, timeout, final=""):
        self.calls.append((time.monotonic(), values[1]))
        return [{"id": id, "answer": "ok"} for id in values[1]]

async def main():
    link, running = Link(), set()
    heart = Heart(link, 3000, running, print)
    row = dict(job_type="t", payload="1", attempts=1, max_attempts=1, tenant=None, metadata=None, lease_token=1, deadline=None,
               progress_data=None, lease_left=60, deadline_left=None)
    for n in range(50):
        running.add(Job({**row, "id": uuid.uuid4()}, heart, asyncio.get_running_loop(), False))
    task = asyncio.ensure_future(heart.run())
    began = time.monotonic()
    while len(link.calls) < 6:
        heart.beat_all()
        await asyncio.sleep(0)
    gaps = [b[0] - a[0] for a, b in zip(link.calls, link.calls[1:])]
    print(min(gaps) > 0.09)
    print(all(ids == sorted(ids) and len(ids) == 50 for _, ids in link.calls))
    before = len(link.calls)
    job = next(iter(running))
    began = time.monotonic()
    for n in range(50):         # a handler that waits is not kept waiting
        await job.checkpoint(n)
    print(time.monotonic() - began < 4)
    task.cancel()
    ended = []
    for turns in range(6):      # a cancel at the moment of a wake ends it
        heart = Heart(link, 3000, set(), print)
        task = asyncio.ensure_future(heart.run())
        await asyncio.sleep(0.01)
        heart.beat_all()
        for turn in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=2)
        ended.append(task.done())
        task.cancel()
    print(all(ended))

asyncio.run(main())
END
is_deeply(\@beats, [ 'True', 'True', 'True', 'True' ], 'heartbeats have a least distance and an order, and end');

# Three of eight rows are locked, until the third heartbeat: the others do not wait for them again.
is(output_of("$top/clients/python", <<'END'), <<'END' =~ s/\n\z//r, 'locked rows come last, and their waits are short');
import asyncio, decimal, uuid
import psycopg
from jobq.heartbeat import Heart
from jobq.job import Job

class Link:
    calls, locked = [], set()
    async def query(self, sql, values, timeout, final=""):
        self.calls.append(f"{len(values[1])}:{values[0]}")
        if self.locked.intersection(values[1]):
            raise psycopg.errors.LockNotAvailable()
        return [{"id": id, "answer": "ok"} for id in values[1]]

async def main():
    link, running = Link(), set()
    heart = Heart(link, 3000, running, print)
    row = dict(job_type="t", payload="1", attempts=1, max_attempts=1, tenant=None, metadata=None, lease_token=1, deadline=None,
               progress_data=None, lease_left=60, deadline_left=None)
    jobs = [Job({**row, "id": uuid.uuid4()}, heart, asyncio.get_running_loop(), False) for n in range(8)]
    running.update(jobs)
    link.locked.update(job.id for job in jobs[:3])
    for turn in range(4):
        if turn == 2:
            link.locked.clear()
        link.calls.clear()
        await heart._beat(list(running))
        print(*link.calls)
    jobs[0].progress(decimal.Decimal("12.5"))
    print(repr(jobs[0]._unsent[0]))
    try:
        jobs[0].progress("40")
    except TypeError as error:
        print(error)

asyncio.run(main())
END
8:1000 1:200 1:200 1:200 1:200 1:200 1:200 1:200 1:200
5:1000 1:200 1:200 1:200
5:1000 1:200 1:200 1:200
8:1000
12.5
progress must be a number, not str
END

# A statement whose prepared form is out of date, and a server that refuses the first connection.
my $node = jobq_server('python');
$node->start;
$node->safe_psql('postgres', 'CREATE TABLE wide AS SELECT 1 AS a');
my $dsn = 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres';
is(output_of("$top/clients/python", <<'END', $dsn), <<'END' =~ s/\n\z//r, 'a changed result, a refused connection, a cancel');
import asyncio, sys, time, types
import psycopg
from jobq.connection import Gone, Link

def log(level, event, **fields):
    print(level, event, fields["link"], "nowhere" in fields["error"] or "cached plan" in fields["error"])

async def main():
    link = Link("claim", sys.argv[1], False, log)
    for n in range(8):
        await link.query("SELECT * FROM wide", [], 10)
    with psycopg.connect(sys.argv[1], autocommit=True) as other:
        other.execute("ALTER TABLE wide ADD COLUMN b int")
    try:
        await link.query("SELECT * FROM wide", [], 10)
    except Gone:
        print(await link.query("SELECT * FROM wide", [], 10))
    await link.close()
    link.connection = types.SimpleNamespace(pgconn=types.SimpleNamespace(get_cancel=Slow))
    began = time.monotonic()
    link.interrupt()
    print(time.monotonic() - began < 0.9)
    link = Link("claim", sys.argv[1].replace("postgres", "nowhere"), False, log)
    for n in range(2):
        try:
            await link.query("SELECT 1", [], 10)
        except Gone:
            pass
    try:
        Link("claim", "hots=db", False, log)
    except psycopg.ProgrammingError as error:
        print(str(error).strip())

class Slow:
    def cancel(self):
        time.sleep(1)

asyncio.run(main())
END
warning reconnecting claim True
[{'a': 1, 'b': None}]
True
error connect_failed claim True
error connect_failed claim True
invalid connection option "hots"
END

# A job that has ended is not kept until the end of its lease.
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
$node->safe_psql('postgres', q(SELECT jobq.create_job_type('kept'); SELECT jobq.enqueue('kept')));
is(output_of("$top/clients/python", <<'END', $dsn), 'True', 'the memory of a job is freed at its end');
import asyncio, gc, sys, weakref
import jobq

jobs = []
worker = jobq.Worker(sys.argv[1], log=lambda *fields, **more: None)

@worker.handler("kept")
async def kept(job):
    jobs.append(weakref.ref(job))

async def main():
    run = asyncio.ensure_future(worker.run_async())
    while not jobs or worker.running:
        await asyncio.sleep(0.02)
    for turn in range(200):
        gc.collect()
        if jobs[0]() is None:
            break
        await asyncio.sleep(0.02)
    print(jobs[0]() is None)
    worker.stop()
    await run

asyncio.run(main())
END

# Signals have their former handlers after the worker; its options and those of enqueue are checked.
is(output_of("$top/clients/python", <<'END', $dsn), <<'END' =~ s/\n\z//r, 'signals, options, a backoff in seconds');
import asyncio, signal, sys
import psycopg, jobq

def own(number, frame):
    pass

signal.signal(signal.SIGTERM, own)
worker = jobq.Worker(sys.argv[1], log=lambda *fields, **more: None)
worker.handler("kept")(lambda job: signal.getsignal(signal.SIGTERM) is own)
with psycopg.connect(sys.argv[1]) as connection:
    taken = jobq.enqueue(connection, "kept", backoff={"type": "fixed", "base": 30})
worker.run_until_empty()
print(signal.getsignal(signal.SIGTERM) is own)
worker.signals = ()
with psycopg.connect(sys.argv[1]) as connection:
    left = jobq.enqueue(connection, "kept")
worker.run_until_empty()
with psycopg.connect(sys.argv[1]) as connection:
    for job in taken, left:
        print(*connection.execute("SELECT status, result FROM jobq.jobs WHERE id = %s", [job]).fetchone())
for option in "poll", "lease", "grace":
    try:
        jobq.Worker(**{option: -1})
    except ValueError as error:
        print(error)

async def main():           # in a loop that has a handler of its own
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, print)
    worker.signals = (signal.SIGTERM,)
    await worker.run_async(until_empty=True)
    print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)

asyncio.run(main())
END
True
completed False
completed True
poll is out of range: -1
lease is out of range: -1
grace is out of range: -1
True
END

# Deadlines in a format of dates that psycopg does not read, and beyond the years of Python; the
# rows of the caller's connection are what its own factory makes.
is(output_of("$top/clients/python", <<'END', $dsn), <<'END' =~ s/\n\z//r, 'deadlines, row factories');
import sys
from datetime import datetime, timedelta, timezone
import psycopg, jobq

def connect():
    return psycopg.connect(sys.argv[1], row_factory=lambda cursor: lambda values: values[0])

worker = jobq.Worker(sys.argv[1] + " options='-c DateStyle=German'", log=lambda *fields, **more: None)

@worker.handler("kept")
def kept(job):
    left = job.deadline - datetime.now(timezone.utc)
    with connect() as connection:
        job.complete(connection, "in an hour" if left < timedelta(hours=1) else "later")

with connect() as connection:
    jobs = [jobq.enqueue(connection, "kept", timeout="1 hour"),
            *jobq.enqueue_many(connection, "kept", [1], timeout="9000 years")]
worker.run_until_empty()
with connect() as connection:
    for job in jobs:
        print(connection.execute("SELECT concat_ws(' ', status, result) FROM jobq.jobs WHERE id = %s",
                                 [job]).fetchone())
END
completed "in an hour"
completed "later"
END

# A signal to a process that a handler forks is that process's own.
is(output_of("$top/clients/python", <<'END', $dsn), <<'END' =~ s/\n\z//r, 'signals of a forked process');
import os, signal, sys
import psycopg, jobq

worker = jobq.Worker(sys.argv[1], log=lambda *fields, **more: None)

@worker.handler("kept")
def kept(job):
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

for handler in signal.SIG_DFL, lambda number, frame: os._exit(7):
    signal.signal(signal.SIGTERM, handler)
    with psycopg.connect(sys.argv[1]) as connection:
        jobq.enqueue_many(connection, "kept", [1, 2])
    worker.run_until_empty()
END
-15
-15
7
7
END

# Types that are claimed one by one have their turns.
$node->safe_psql('postgres',
	q(SELECT jobq.create_job_type(name) FROM unnest('{full,small,plain}'::text[]) AS name));
is(output_of("$top/clients/python", <<'END', $dsn), 'full plain small full', 'a full type leaves turns to others');
import sys
import psycopg, jobq

calls = []
worker = jobq.Worker(sys.argv[1], log=lambda *fields, **more: None)
for name in "full", "small":
    worker.handler(name, batch=2)(lambda jobs: calls.append(jobs[0].type) or [None] * len(jobs))
worker.handler("plain")(lambda job: calls.append(job.type))
with psycopg.connect(sys.argv[1]) as connection:
    for name, jobs in ("full", 12), ("small", 1), ("plain", 1):
        jobq.enqueue_many(connection, name, range(jobs))
worker.run_until_empty()
print(*sorted(set(calls)), calls[-1])
END

# A thread that cannot start costs no attempt; a refused claim ends run_until_empty, a first one
# with any error.
is(output_of("$top/clients/python", <<'END', $dsn), <<'END' =~ s/\n\z//r, 'no thread, refused claims');
import sys, threading
import psycopg, jobq

def log(level, event, **fields):
    if event in ("internal_error", "job_released", "claim_refused"):
        print(event)

def refused(thread):
    threading.Thread.start = start
    raise RuntimeError("can't start new thread")

worker = jobq.Worker(sys.argv[1], log=log)
worker.handler("kept")(print)
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    job = jobq.enqueue(connection, "kept")
    start, threading.Thread.start = threading.Thread.start, refused
    worker.run_until_empty()
    print(*connection.execute("SELECT status, attempts FROM jobq.jobs WHERE id = %s", [job]).fetchone())
    connection.execute("SELECT jobq.cancel_job(%s)", [job])
    jobq.enqueue(connection, "plain")

@worker.handler("plain")
def plain(job):
    with psycopg.connect(sys.argv[1]) as connection:
        connection.execute("SELECT jobq.drop_job_type('small', force => true)")

worker.handler("small")(print)

async def claim(*arguments):
    raise psycopg.errors.InternalError_("not today")

for turn in range(2):
    try:
        worker.run_until_empty()
    except psycopg.Error as error:
        print(error.sqlstate)
    worker._claim = claim
END
internal_error
job_released
pending 0
claim_refused
42704
claim_refused
XX000
END
$node->stop;
done_testing();
