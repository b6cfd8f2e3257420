"""Servers of a peer, started for one reading; and the versions of all programs."""
import contextlib
import json
import pathlib
import socket
import subprocess
import sys
from typing import Dict, Iterator, List, Sequence, Tuple

from .cluster import SETTINGS, Cluster, psql, started, wait_until
from .subjects import PEERS


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def redis_answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as s:
        s.sendall(b"PING\r\n")
        return s.recv(16).startswith(b"+PONG")
    return False


def start_redis(fsync: str, scratch: pathlib.Path) -> Tuple[Dict[str, str], subprocess.Popen]:
    """As durable as appendfsync says: `always` is what a commit is, `everysec` is what most run."""
    port = free_port()
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(scratch), "--appendonly", "yes",
         "--appendfsync", fsync, "--save", "", "--maxmemory-policy", "noeviction", "--daemonize", "no"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: redis_answers(port), "redis-server answers", 20, 0.05, server)
    return {"REDIS_PORT": str(port), "REDIS_URL": "redis://127.0.0.1:%d" % port}, server


def pg_cron_settings(config: str) -> Dict[str, str]:
    """pg_cron has one database of a server."""
    return {**SETTINGS, "shared_preload_libraries": "pg_cron", "cron.host": "@socket@", "cron.database_name": "postgres",
            "cron.use_background_workers": "on" if config == "worker" else "off"}


def crowd_settings(config: str) -> Dict[str, str]:
    """A server for so many clients at once."""
    return {**SETTINGS, "max_connections": str(int(config) + 50)}


OTHER_SERVERS = {"pg_cron": pg_cron_settings, "crowd": crowd_settings}


@contextlib.contextmanager
def running(wanted: Sequence[str], scratch: pathlib.Path, server: Cluster) -> Iterator[Tuple[Dict[str, str], List[int]]]:
    """Yields the environment for the programs, and the pids of these servers, for the server's CPU."""
    env: Dict[str, str] = {}
    roots: List[int] = []
    with contextlib.ExitStack() as ends:
        for service in wanted:
            name, config = service.split("-")
            if name in OTHER_SERVERS:
                other = ends.enter_context(started(OTHER_SERVERS[name](config)))
                more, root = other.env, other.postmaster
            else:
                more, program = start_redis(config, scratch)
                root = program.pid
                ends.callback(program.wait)
                ends.callback(program.terminate)
            env.update(more)
            roots.append(root)
        yield env, roots


def versions(server: Cluster) -> Dict[str, str]:
    """Returns the versions of the installed peers."""
    found = dict(row.split("|") for row in psql(server.env, """SELECT name, default_version FROM pg_available_extensions
        WHERE name IN ('jobq', 'pgq', 'pg_cron')"""))
    for package in PEERS.glob("node_modules/*/package.json"):
        if package.parent.name in ("graphile-worker", "pg-boss", "bullmq"):
            found[package.parent.name] = json.loads(package.read_text())["version"]
    with contextlib.suppress(OSError):
        told = subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout
        found["redis"] = told.partition("v=")[2].split()[0]
    return found


def python() -> str:
    """The interpreter for the report: Debian installs matplotlib for its own Python."""
    for program in sys.executable, "/usr/bin/python3":
        if subprocess.run([program, "-c", "import matplotlib"], capture_output=True).returncode == 0:
            return program
    return sys.executable
