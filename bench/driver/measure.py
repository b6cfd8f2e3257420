"""The cost of a reading: CPU, WAL, sizes, dead rows, wake-ups; and quantiles.

CPU is read from /proc: user + system of every process of the server's tree and of the children they have waited for, so that
a backend or a tool that ended in between still counts.  A peer with a server of its own (redis, a ticker) has that
server's tree added.  Clients report their own.  The kernel counts in ticks of 10 ms, so short readings are coarse.
"""
import contextlib
import math
import os
import pathlib
import time
from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

from . import cluster

TICKS = os.sysconf("SC_CLK_TCK")


def processes() -> Dict[int, Tuple[int, int]]:
    """pid -> (parent, ticks of itself and of the children it has waited for)."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):   # gone since then
            text = pathlib.Path("/proc", pid, "stat").read_text()
            fields = text[text.rindex(")") + 2:].split()   # the name may hold anything
            found[int(pid)] = (int(fields[1]), sum(map(int, fields[11:15])))
    return found


def tree(roots: Iterable[int], found: Dict[int, Tuple[int, int]]) -> List[int]:
    """The roots and all their descendants."""
    children: Dict[int, List[int]] = {}
    for pid, (parent, _) in found.items():
        children.setdefault(parent, []).append(pid)
    todo, seen = [r for r in roots if r in found], []
    while todo:
        pid = todo.pop()
        seen.append(pid)
        todo += children.get(pid, [])
    return seen


def cpu_seconds(roots: Sequence[int]) -> float:
    """CPU that the trees below these processes have used so far.

    What ends while we look may be seen in its parent's account, in its own, in both or in neither: a client that has just
    gone leaves a backend that is about to.  So it is counted when the same processes were there 50 ms before and after.
    """
    deadline = time.monotonic() + 3
    found = processes()
    while True:
        time.sleep(0.05)
        before, found = tree(roots, found), processes()
        if sorted(before) == sorted(tree(roots, found)) or time.monotonic() > deadline:
            return sum(found[pid][1] for pid in tree(roots, found)) / TICKS


def context_switches(pid: int) -> int:
    """Voluntary context switches of all threads of a process."""
    total = 0
    with contextlib.suppress(OSError):   # it, or a thread, has gone
        for thread in os.listdir("/proc/%d/task" % pid):
            for line in pathlib.Path("/proc/%d/task" % pid, thread, "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    total += int(line.split()[1])
    return total


def private_bytes(pid: int) -> int:
    """Anonymous memory of a process that is resident; 0 when it has gone."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/%d/status" % pid).read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


SIZES = """
SELECT coalesce(sum(pg_table_size(c.oid)), 0), coalesce(sum(pg_indexes_size(c.oid)), 0),
       coalesce(sum((bench.pgstattuple_approx(c.oid)).dead_tuple_count), 0)
  FROM pg_class c WHERE c.relkind = 'r' AND c.oid::regclass::text LIKE ANY ('{%s}')"""


def sizes(session: "cluster.Session", tables: Sequence[str]) -> Dict[str, int]:
    """Heap, indexes and dead rows of the tables whose names match one of these LIKE patterns."""
    if not tables:
        return {}
    heap, index, dead = session.value(SIZES % ",".join(tables)).split("|")
    return {"heap_bytes": int(heap), "index_bytes": int(index), "dead_rows": int(dead)}


@contextlib.contextmanager
def cost(session: "cluster.Session", roots: Sequence[int], tables: Sequence[str] = ()) -> Iterator[Dict[str, float]]:
    """Fills in the cost of the body: cpu_server, wal_bytes and the sizes after it.  Begins with a checkpoint."""
    session.query("CHECKPOINT")
    found: Dict[str, float] = {}
    wal = session.value("SELECT pg_current_wal_insert_lsn()")
    cpu = cpu_seconds(roots)
    yield found
    found["cpu_server"] = round(cpu_seconds(roots) - cpu, 2)
    found["wal_bytes"] = int(session.value("SELECT pg_current_wal_insert_lsn() - '%s'" % wal))
    found.update(sizes(session, tables))


def quantile(ordered: Sequence[float], q: float) -> float:
    """The smallest value that at least q of the values do not exceed."""
    return round(ordered[max(0, math.ceil(q * len(ordered)) - 1)], 6)


def quantiles(values: Iterable[float]) -> Dict[str, float]:
    """p50, p95, p99 and max; nothing of nothing."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {"p50": quantile(ordered, 0.50), "p95": quantile(ordered, 0.95), "p99": quantile(ordered, 0.99),
            "max": round(ordered[-1], 6)}
