"""jobq-web before the server of the benchmark, and HTTP over sockets.

The time of a request is from before its first byte is sent to after the last byte of the reply; decoding is not in it.  A Connection stays open as long as jobq-web leaves it open.
"""
import base64
import contextlib
import gzip
import itertools
import json
import os
import pathlib
import selectors
import socket
import subprocess
import threading
import time
import zlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from driver import cluster, measure

ROLE, PASSWORD = "web_ops", "of the benchmark"
PATIENCE = 120   # seconds for a reply
AN_ADDRESS = 60   # connections of one address: jobq-web admits 64


class Reply(NamedTuple):
    status: int
    headers: Dict[str, str]
    body: bytes          # as it came
    seconds: float

    def json(self) -> Any:
        return json.loads(self.text())

    def text(self) -> bytes:
        return gzip.decompress(self.body) if self.headers.get("content-encoding") == "gzip" else self.body


class Connection:
    """One keep-alive connection to jobq-web, signed in by Basic."""

    def __init__(self, port: int, source: str = "127.0.0.1"):
        self.address, self.source = ("127.0.0.1", port), source
        self.socket: Optional[socket.socket] = None
        self.rest = b""

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        if self.socket:
            self.socket.close()
        self.socket, self.rest = None, b""

    def send(self, method: str, path: str, body: Any = None, headers: Sequence[str] = ()) -> socket.socket:
        if not self.socket:
            self.socket = socket.create_connection(self.address, PATIENCE, (self.source, 0))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b"" if body is None else json.dumps(body).encode()
        secret = base64.b64encode(("%s:%s" % (ROLE, PASSWORD)).encode()).decode()
        lines = ["%s %s HTTP/1.1" % (method, path), "Host: %s:%d" % self.address, "Authorization: Basic " + secret, *headers]
        if body is not None:
            lines += ["Content-Type: application/json", "Content-Length: %d" % len(data)]
        self.socket.sendall("\r\n".join(lines + ["", ""]).encode() + data)
        return self.socket

    def ask(self, method: str, path: str, body: Any = None, headers: Sequence[str] = ()) -> Reply:
        """A request and its whole reply; another connection if jobq-web has closed this one."""
        began = time.perf_counter()
        kept = self.socket is not None
        try:
            self.send(method, path, body, headers)
            reply = self.receive()
        except (ConnectionError, EOFError):
            self.close()
            if not kept or method != "GET":
                raise
            return self.ask(method, path, body, headers)
        return reply._replace(seconds=time.perf_counter() - began)

    def get(self, path: str, *headers: str) -> Reply:
        return self.ask("GET", path, headers=headers)

    def receive(self) -> Reply:
        data = self.rest
        while b"\r\n\r\n" not in data:
            data += self.more()
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        parts, have = [body], len(body)
        while have < length:
            parts.append(self.more())
            have += len(parts[-1])
        whole = b"".join(parts)
        self.rest = whole[length:]
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Reply(int(first.split()[1]), headers, whole[:length], 0.0)

    def more(self) -> bytes:
        data = self.socket.recv(1 << 18) if self.socket else b""
        if not data:
            raise EOFError("jobq-web closed the connection")
        return data


class Web(NamedTuple):
    """A running jobq-web."""
    pid: int
    port: int

    def connection(self, source: str = "127.0.0.1") -> Connection:
        return Connection(self.port, source)

    def cpu(self) -> float:
        return measure.processes()[self.pid][1] / measure.TICKS

    def memory(self) -> int:
        """Resident bytes, with the pages of libraries."""
        for line in pathlib.Path("/proc/%d/status" % self.pid).read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("jobq-web has ended")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(server: cluster.Cluster, database: Dict[str, str], work: pathlib.Path) -> Iterator[Web]:
    """jobq-web of this build before a database; it is ended with the body."""
    program, port, log = server.bin / "jobq-web", free_port(), work / "jobq-web.log"
    if not program.exists():
        raise SystemExit("jobq-web was not built: the headers of libmicrohttpd are missing")
    settings = {"dsn": "host=%(PGHOST)s dbname=%(PGDATABASE)s" % database, "listen": "127.0.0.1:%d" % port}
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "JOBQ_WEB_"))}
    with open(log, "ab") as errors:
        process = subprocess.Popen([str(program), "--config=/dev/null", *("--%s=%s" % s for s in settings.items())],
                                   stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=environment)
    try:
        cluster.wait_until(lambda: b"serves http://127.0.0.1:%d" % port in log.read_bytes(), "jobq-web serves", 30, 0.02, process)
        yield Web(process.pid, port)
    finally:
        process.terminate()
        process.wait()


# --- an offered rate ------------------------------------------------------------------------------

class Offered(NamedTuple):
    """The outcome of requests at a rate."""
    seconds: Dict[str, List[float]]   # by name
    late: List[float]                 # from when a request was due until it was sent
    bytes: Dict[str, int]             # of the last reply
    refused: Dict[str, int]           # replies other than 200
    cpu: float                        # of these threads


def offer(web: Web, requests: Sequence[Tuple[str, Sequence[str]]], rate: float, seconds: float, connections: int) -> Offered:
    """GETs named requests in turn, each path of a name in turn; one whose turn has passed while all connections wait goes out at once."""
    found = Offered({name: [] for name, _ in requests}, [], {}, {}, 0.0)
    paths = [itertools.cycle(each) for _, each in requests]
    total, turn, lock = int(rate * seconds), itertools.count(), threading.Lock()
    start, cpu, problems = time.perf_counter() + 0.1, [], []

    def run() -> None:
        with web.connection() as connection:
            began = time.thread_time()
            while True:
                with lock:
                    k = next(turn)
                    name, path = requests[k % len(requests)][0], next(paths[k % len(requests)])
                if k >= total or problems:
                    break
                due = start + k / rate
                time.sleep(max(0.0, due - time.perf_counter()))
                late = time.perf_counter() - due
                reply = connection.get(path)
                with lock:
                    found.seconds[name].append(reply.seconds)
                    found.late.append(late)
                    found.bytes[name] = len(reply.body)
                    if reply.status != 200:
                        found.refused[name] = found.refused.get(name, 0) + 1
            cpu.append(time.thread_time() - began)

    def guarded() -> None:
        try:
            run()
        except Exception as problem:   # told by the caller's thread
            problems.append(problem)

    threads = [threading.Thread(target=guarded) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return found._replace(cpu=round(sum(cpu), 3))


# --- streams --------------------------------------------------------------------------------------

class Events:
    """The events of a stream, out of its chunks of gzip."""

    EVENT = b"event: overview"

    def __init__(self) -> None:
        self.raw, self.tail, self.begun = b"", b"", False
        self.unpack = zlib.decompressobj(31)

    def overviews(self, data: bytes) -> int:
        """How many overviews begin in this data."""
        self.raw += data
        text = self.tail
        if not self.begun:
            head, end, rest = self.raw.partition(b"\r\n\r\n")
            if not end:
                return 0
            if b"content-encoding: gzip" not in head.lower():
                raise RuntimeError("a stream is not in gzip")
            self.begun, self.raw = True, rest
        while True:
            size, end, rest = self.raw.partition(b"\r\n")
            if not end or len(rest) < int(size, 16) + 2:
                break
            text += self.unpack.decompress(rest[:int(size, 16)])
            self.raw = rest[int(size, 16) + 2:]
        self.tail = text[-(len(self.EVENT) - 1):]
        return text.count(self.EVENT)


class Streams:
    """Many streams of one role, read by one thread, which unpacks one of UNPACKED."""

    UNPACKED = 50

    def __init__(self, web: Web, number: int, a_second: float = 40):
        """Opens them at a rate that the limit of requests of a session admits."""
        self.overviews = self.bytes = self.closed = self.unpacked = 0
        self.over = threading.Event()
        self.selector = selectors.DefaultSelector()
        self.connections: List[Connection] = []
        due = time.monotonic()
        for i in range(number):
            connection = web.connection("127.0.0.%d" % (1 + i // AN_ADDRESS))
            connection.send("GET", "/api/v1/stream", headers=["Accept: text/event-stream", "Accept-Encoding: gzip"]).setblocking(False)
            self.selector.register(connection.socket, selectors.EVENT_READ, Events() if i % self.UNPACKED == 0 else None)
            self.unpacked += i % self.UNPACKED == 0
            self.connections.append(connection)
            due += 1 / a_second
            self.read(0)
            time.sleep(max(0.0, due - time.monotonic()))
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.over.is_set():
            self.read(0.2)

    def read(self, patience: float) -> None:
        for key, _ in self.selector.select(patience):
            data = key.fileobj.recv(1 << 16)   # type: ignore[union-attr]
            if not data:
                self.closed += 1
                self.selector.unregister(key.fileobj)
                continue
            self.bytes += len(data)
            self.overviews += key.data.overviews(data) if key.data else 0

    def close(self) -> None:
        self.over.set()
        self.thread.join()
        for connection in self.connections:
            connection.close()
        self.selector.close()
