"""The private cluster, its databases, and SQL by psql.

One durable cluster serves a whole run.  driver/cluster.sh starts it, and stops it when this process ends.  Every reading
gets its own database, a copy of a template (the table bench.result and two contrib extensions), so that earlier readings
have no effect.  A Session is one lasting psql: a poll costs the server a query and not a connection, and a Session can
hold a snapshot.
"""
import contextlib
import os
import pathlib
import subprocess
import time
from typing import Dict, Iterator, List, NamedTuple, Optional

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
BUILD = TOP / "build" / "bench"

TEMPLATE = """
CREATE SCHEMA bench;
CREATE TABLE bench.result (n bigint, ran double precision);
CREATE EXTENSION pgstattuple SCHEMA bench;
CREATE EXTENSION pg_stat_statements SCHEMA bench;
"""


# A server that has run for a while reuses WAL segments, so no subject pays for making them.
USED_WAL = """
DO $$ BEGIN
  FOR i IN 1 .. 64 LOOP
    PERFORM pg_logical_emit_message(false, 'bench', ''), pg_switch_wal();
  END LOOP;
END $$;
CHECKPOINT;
"""


class Cluster(NamedTuple):
    """A running server; `env` is what a client needs to connect to it."""
    bridge: subprocess.Popen
    work: pathlib.Path
    bin: pathlib.Path
    postmaster: int
    version: str
    env: Dict[str, str]


def shared_buffers() -> str:
    """1 GB, or an eighth of a smaller machine."""
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return "%dMB" % (min(1 << 30, ram // 8) >> 20)


# pg_stat_statements is on only in the databases of the idle workload:
# no peer pays for it elsewhere.
SETTINGS = {
    "fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "wal_level": "replica",
    "shared_buffers": shared_buffers(), "max_wal_size": "8GB", "min_wal_size": "1GB", "checkpoint_timeout": "30min", "autovacuum": "on",
    "max_connections": "200", "max_worker_processes": "32", "shared_preload_libraries": "jobq,pg_stat_statements",
    "compute_query_id": "off", "pg_stat_statements.track": "none", "log_checkpoints": "off",
}


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    """The server of a run, with its template."""
    with started(SETTINGS) as cluster:
        make_template(cluster)
        psql(cluster.env, USED_WAL)
        yield cluster


@contextlib.contextmanager
def started(given: Dict[str, str]) -> Iterator[Cluster]:
    """Builds jobq and starts a server; stops and removes it at the end.  @socket@ in a setting is the server's socket."""
    settings = ["%s = '%s'" % s for s in given.items()]
    bridge = subprocess.Popen([str(HERE / "cluster.sh"), *settings], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, start_new_session=True)
    try:
        told = [bridge.stdout.readline().strip() for _ in range(5)]
        if not told[-1]:
            raise SystemExit("the server could not be built or started")
        work, bin_dir, socket, postmaster, version = told
        env = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        env.update(PATH=bin_dir + ":" + env["PATH"], PGHOST=socket, PGUSER="postgres", PGDATABASE="postgres")
        yield Cluster(bridge, pathlib.Path(work), pathlib.Path(bin_dir), int(postmaster), version, env)
    finally:
        bridge.stdin.close()
        bridge.wait()


def restart(cluster: Cluster) -> int:
    """Restarts a server of one reading; its sessions end.  Returns the new process id of the server."""
    cluster.bridge.stdin.write("restart\n")
    cluster.bridge.stdin.flush()
    return int(cluster.bridge.stdout.readline())


def make_template(cluster: Cluster) -> None:
    psql(cluster.env, "CREATE DATABASE bench_template")
    psql({**cluster.env, "PGDATABASE": "bench_template"}, TEMPLATE)


@contextlib.contextmanager
def fresh_database(cluster: Cluster, name: str, settings: Dict[str, str]) -> Iterator[Dict[str, str]]:
    """A copy of the template; yields the environment that connects to it."""
    psql(cluster.env, "CREATE DATABASE %s TEMPLATE bench_template" % name)
    try:
        for setting, value in settings.items():
            psql(cluster.env, "ALTER DATABASE %s SET %s = '%s'" % (name, setting, value))
        yield {**cluster.env, "PGDATABASE": name}
    finally:
        psql(cluster.env, "DROP DATABASE %s WITH (FORCE)" % name)


def psql(env: Dict[str, str], sql: str) -> List[str]:
    """Runs SQL, each statement a transaction; the lines of its answers."""
    done = subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1"], env=env, input=sql, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError("psql: %s" % done.stderr.strip())
    return done.stdout.splitlines()


class Session:
    """One psql that stays connected."""

    END = "--end of answer--"

    def __init__(self, env: Dict[str, str]):
        self.psql = subprocess.Popen(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1"], env=env, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.psql.stdin.close()
        self.psql.wait()
        self.psql.stdout.close()
        self.psql.stderr.close()

    def query(self, sql: str) -> List[str]:
        """The lines of the answers to one or more statements."""
        self.psql.stdin.write("%s%s\n\\echo %s\n" % (sql, "" if "\\g" in sql else ";", self.END))
        self.psql.stdin.flush()
        lines = []
        for line in self.psql.stdout:
            if line.rstrip("\n") == self.END:
                return lines
            lines.append(line.rstrip("\n"))
        raise RuntimeError("psql: %s" % self.psql.stderr.read().strip())

    def value(self, sql: str) -> str:
        """The only value of a query."""
        return self.query(sql)[0]


def wait_until(condition, what: str, seconds: float, pause: float = 0.1, alive: Optional[subprocess.Popen] = None) -> None:
    """Polls until the condition holds; raises after so many seconds, or when the process it depends on has ended."""
    limit = time.monotonic() + seconds
    while not condition():
        if alive is not None and alive.poll() is not None:
            raise RuntimeError("%s: a process ended before (exit %s)" % (what, alive.returncode))
        if time.monotonic() > limit:
            raise RuntimeError("%s: not within %d s" % (what, seconds))
        time.sleep(pause)
