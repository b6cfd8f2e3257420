"""Schedules: from the tick to the handler's first clock reading, with few schedules and with many; the cost of a tick.

A tick is a whole second.  A handler of jobq writes the tick of its payload beside its first clock reading.  A peer's
handler writes the clock reading only: its tick is the minute before.  A reading in which a tick of jobq was lost, or ran
twice, fails.
"""
import contextlib
import time
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from . import clients, measure
from .clients import Place
from .cluster import SETTINGS, Cluster, Session, psql, restart, started, wait_until
from .steady import CONNECTIONS, SNAPSHOT
from .subjects import BIN
from .workloads import Outcome, idle

SETUP = """
CREATE TABLE bench.ticked (schedule int, tick timestamptz, ran timestamptz);
CREATE FUNCTION bench.tick(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  ran timestamptz := clock_timestamp();
BEGIN
  INSERT INTO bench.ticked VALUES ((payload->>'n')::int, (payload->>'tick')::timestamptz, ran);
END $$;
SELECT jobq.create_job_type('tick', handler => 'bench.tick(jsonb)');
"""
CREATE = """SELECT count(jobq.schedule('s' || n, %s, 'tick', jsonb_build_object('n', n, 'tick', '{"$": "$.tick"}'::jsonb),
 overlap => '%s')) FROM generate_series(0, %d) n"""
EACH_MINUTE_OF_CRON = "* * * * *"
EACH_SECOND = "'* * * * * *'"
EACH_MINUTE = "n % 60 || ' * * * * *'"
OF_TICKS = "FROM jobq.history WHERE metadata ? 'schedule' AND created_at > to_timestamp(%s)"
CONDUCTOR = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq conductor' AND datname = current_database()"
WARM = 3   # seconds between the first tick and the measured ones


class Tick(NamedTuple):
    """A tick and its job; the times are epoch seconds."""
    schedule: int
    tick: float
    ran: float


def create(place: Place, schedules: int, cron: str, overlap: str = "skip") -> float:
    """Creates schedules in one statement, n from 0; returns its seconds."""
    place.session.query(SETUP)
    began = time.monotonic()
    place.session.query(CREATE % (cron, overlap, schedules - 1))
    return time.monotonic() - began


def conductor(place: Place) -> int:
    """Returns the process id of the conductor, once it has started."""
    wait_until(lambda: place.session.query(CONDUCTOR), "a conductor starts", 30)
    return int(place.session.value(CONDUCTOR))


def sleep_till(epoch: float) -> None:
    time.sleep(max(0.0, epoch - time.time()))


# --- reading ticks --------------------------------------------------------------------------------

IN_TIME = "FROM bench.ticked WHERE tick >= to_timestamp(%d) AND tick < to_timestamp(%d)"


def read_ticks(place: Place, since: int, until: int, expected: int) -> List[Tick]:
    """The ticks from since to before until, after the end of their jobs; raises unless each has run once."""
    in_time = IN_TIME % (since, until)

    def ended() -> bool:
        return int(place.session.value("SELECT count(*) " + in_time)) >= expected

    with contextlib.suppress(RuntimeError):   # the count below shows how many are lost
        wait_until(ended, "ticks run", 30)
    rows, distinct = place.session.value("SELECT count(*), count(DISTINCT (schedule, tick)) " + in_time).split("|")
    if (int(rows), int(distinct)) != (expected, expected):
        raise RuntimeError("%s jobs of %s ticks, expected %d" % (rows, distinct, expected))
    found = place.session.query("SELECT schedule, extract(epoch FROM tick), extract(epoch FROM ran) " + in_time)
    return [Tick(int(n), *map(float, at)) for n, *at in (row.split("|") for row in found)]


def lateness(ticks: Sequence[Tick]) -> Dict[str, float]:
    return measure.quantiles(t.ran - t.tick for t in ticks)


Transactions = Dict[Tuple[int, float], str]
WRITTEN = "SELECT substr(name, 2), extract(epoch FROM last_tick), xmin FROM jobq.schedules WHERE last_tick IS NOT NULL"


def note_transactions(place: Place, transactions: Transactions) -> None:
    """Notes for each schedule the transaction of its last tick."""
    for row in place.session.query(WRITTEN):
        n, tick, xid = row.split("|")
        transactions[int(n), float(tick)] = xid


def committed(ticks: Sequence[Tick], transactions: Transactions) -> float:
    """At most so many seconds after a tick its last job was committed, at the worst tick.

    All jobs of a transaction were committed when the first of them ran.
    """
    commits: Dict[Tuple[float, str], float] = {}
    for t in ticks:
        key = t.tick, transactions[t.schedule, t.tick]
        commits[key] = min(commits.get(key, t.ran), t.ran)
    return round(max(commit - tick for (tick, _), commit in commits.items()), 6)


# --- second -------------------------------------------------------------------------------------

def second(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """One schedule in an idle database: each second by jobq, each minute by the peers."""
    if place.subject.family != "jobq":
        return minute(place, p)
    create(place, 1, EACH_SECOND)
    since = int(time.time()) + WARM
    with measure.cost(place.session, place.roots) as cost:
        sleep_till(since + p["seconds"])
        ticks = read_ticks(place, since, since + p["seconds"], p["seconds"])
    return {"jobs": len(ticks), "latency": lateness(ticks), **cost}, {}


def minute(place: Place, p: Dict[str, Any]) -> Outcome:
    """A cron job of a peer, so many times; the first minute only starts it."""
    work = None
    if place.subject.worker:
        work = clients.begin_work(place, "row", more=("--cron", EACH_MINUTE_OF_CRON))
        clients.go(work)
    else:
        place.session.query(place.subject.schedule)
    wanted = p["minutes"] + 1
    wait_until(lambda: int(place.session.value("SELECT count(*) FROM bench.result")) >= wanted, "cron jobs run", 60 * wanted + 90, 1)
    rows = place.session.query("SELECT ran FROM bench.result ORDER BY ran OFFSET 1")
    if work is not None:
        clients.end_work(work)
    return {"jobs": len(rows), "latency": measure.quantiles(float(ran) % 60 for ran in rows)}, {}


# --- thousand -----------------------------------------------------------------------------------

def thousand(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Many schedules of each second beside one-row jobs at a steady rate."""
    create(place, p["schedules"], EACH_SECOND)
    clients.make_ready(place)
    work = clients.begin_work(place, "row")
    clients.go(work)
    feeding = clients.feeding(place, "row", {"rate": p["rate"], "seconds": p["seconds"] + WARM + 1, "times": place.work / "times",
                                             "connections": CONNECTIONS[p["rate"]]})
    since = int(time.time()) + WARM
    expected = p["schedules"] * p["seconds"]
    transactions: Transactions = {}
    with measure.cost(place.session, place.roots, place.subject.tables) as cost:
        for second in range(p["seconds"]):
            sleep_till(since + second + 0.7)
            note_transactions(place, transactions)
        fed = clients.finish(place, feeding)
        ticks = read_ticks(place, since, since + p["seconds"], expected)
    clients.wait_for_rows(place, fed["jobs"])
    ran = clients.read_results(place)
    beside = measure.quantiles(ran[int(n)] - due for n, due, *_ in clients.read_times(place.work / "times"))
    return {"jobs": expected, "latency": lateness(ticks), "committed": committed(ticks, transactions), "beside": beside,
            "cpu_client": fed["cpu"], **cost}, {}


# --- many ---------------------------------------------------------------------------------------

def many(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Many schedules, each of them once a minute: the conductor's memory and CPU, and the time of its start."""
    took = create(place, p["schedules"], EACH_MINUTE)
    clients.make_ready(place)
    pid = conductor(place)
    since = int(time.time()) + WARM
    sleep_till(since)
    with measure.cost(place.session, place.roots, place.subject.tables) as cost:
        used, began = own_cpu(pid), time.monotonic()
        sleep_till(since + p["seconds"])
        used, passed = own_cpu(pid) - used, time.monotonic() - began
    held = measure.private_bytes(pid)
    each = [len(range(n, p["schedules"], 60)) for n in range(60)]
    expected = sum(each[tick % 60] for tick in range(since, since + p["seconds"]))
    ticks = read_ticks(place, since, since + p["seconds"], expected)
    return {"jobs": expected, "rate": round(expected / p["seconds"], 1), "latency": lateness(ticks),
            "conductor": {"bytes": held, "cpu": round(used / passed, 4)}, "created": round(took, 3),
            "first_tick": first_tick(place, pid), **cost}, {}


def own_cpu(pid: int) -> float:
    """CPU seconds of one process."""
    return measure.processes()[pid][1] / measure.TICKS


def first_tick(place: Place, pid: int) -> float:
    """Ends the conductor; returns the seconds until its successor has enqueued the job of a tick."""
    began = time.time()
    place.session.query("SELECT pg_terminate_backend(%d)" % pid)
    wait_until(lambda: place.session.query(CONDUCTOR + " AND pid <> %d" % pid), "the next conductor", 30, 0.01)
    start = place.session.value("SELECT extract(epoch FROM backend_start) FROM pg_stat_activity WHERE backend_type = 'jobq conductor'")
    return round(first_job(place, float(start)) - began, 3)


def first_job(place: Place, since: float) -> float:
    """Waits for the job of a tick that was enqueued after an instant; returns when the first of them was."""
    later = OF_TICKS % since
    wait_until(lambda: place.session.query("SELECT 1 %s LIMIT 1" % later), "a tick", 60)
    return float(place.session.value("SELECT extract(epoch FROM min(created_at)) " + later))


# --- start --------------------------------------------------------------------------------------

def start(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """A server of its own with many schedules, each of them once a minute: from its start to the job of the first tick."""
    with started(SETTINGS) as server:
        psql(server.env, "CREATE SCHEMA bench; CREATE TABLE bench.result (n bigint, ran double precision)")
        with Session(server.env) as session:
            own = Place(place.subject, server.env, session, [server.postmaster], place.work)
            session.query(place.subject.setup)
            create(own, p["schedules"], EACH_MINUTE)
            first_job(own, 0)
        times = [restarted(own, server) for _ in range(p["rounds"])]
    return {"jobs": p["schedules"], "first_tick": max(times)}, {}


def restarted(own: Place, server: Cluster) -> float:
    """Restarts the server; returns the seconds from its start to the first job of a tick."""
    restart(server)
    with Session(server.env) as session:
        began = float(session.value("SELECT extract(epoch FROM pg_postmaster_start_time())"))
        return round(first_job(Place(own.subject, own.env, session, [], own.work), began) - began, 3)


# --- next ---------------------------------------------------------------------------------------

def next_tick(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """The search for the next tick of an expression, outside of the server."""
    done = clients.finish(place, clients.start(place, [str(BIN / "next_tick"), "--calls", str(p["calls"])]))
    return {"jobs": done["jobs"], "latency": done["latency"], "worst": done["worst"]}, {}


def idle_many(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """The workload idle, with many schedules of which none is due within hours."""
    hour = (time.gmtime().tm_hour + 12) % 24
    create(place, p["schedules"], "n %% 60 || ' %d * * *'" % hour)
    clients.make_ready(place)
    conductor(place)
    return idle(place, variant, p)


# --- snapshot -----------------------------------------------------------------------------------

def snapshot(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Schedules of each second under a held snapshot: the latency of the first and of the last ticks."""
    create(place, p["schedules"], EACH_SECOND)
    since = int(time.time()) + WARM
    sleep_till(since)
    with Session(place.env) as holder, measure.cost(place.session, place.roots, place.subject.tables) as cost:
        holder.query(SNAPSHOT)
        sleep_till(since + p["seconds"])
        ticks = read_ticks(place, since, since + p["seconds"], p["schedules"] * p["seconds"])
    seconds = [lateness([t for t in ticks if t.tick == since + second]) for second in range(p["seconds"])]
    ends = {"first": since + p["edge"], "last": since + p["seconds"]}
    edges = {name: lateness([t for t in ticks if end - p["edge"] <= t.tick < end]) for name, end in ends.items()}
    return {"jobs": len(ticks), "latency": lateness(ticks), **edges, **cost}, {
        "second": list(range(p["seconds"])), "p50": [q["p50"] for q in seconds], "p99": [q["p99"] for q in seconds]}


# --- wal ----------------------------------------------------------------------------------------

# Each page of the copy has room for a second version of all of its rows: its updates are HOT.
COPY = """
CREATE TABLE bench.schedules (LIKE jobq.schedules) WITH (fillfactor = 40);
INSERT INTO bench.schedules SELECT * FROM jobq.schedules;
CREATE UNIQUE INDEX ON bench.schedules (id);
"""
UPDATE = """UPDATE bench.schedules SET last_tick = clock_timestamp(), ticks_after = clock_timestamp(), next_tick = clock_timestamp(),
 updated_at = clock_timestamp(), runs = runs + 1, last_job_id = gen_random_uuid()"""
ENQUEUE = """SELECT count(jobq.enqueue('tick', jsonb_build_object('n', n, 'tick', '2026-01-01T00:00:00+00:00'),
 metadata => jsonb_build_object('schedule', 's' || n, 'tick', '2026-01-01T00:00:00+00:00', 'last_tick', '2026-01-01T00:00:01+00:00')))
 FROM generate_series(0, %d) n"""


def wal(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """WAL of a tick, of an enqueue with the same payload and metadata, and of an update of the same columns."""
    rounds, schedules = p["seconds"], p["schedules"]
    create(place, schedules, EACH_SECOND, "allow")
    place.session.query("SELECT jobq.pause_job_type('tick')")
    place.session.query("CHECKPOINT")
    sleep_till(int(time.time()) + 2 * WARM + 0.5)   # between two ticks, and after the first images of pages
    began, before = wal_position(place), runs(place)
    sleep_till(int(time.time()) + rounds + 0.5)
    tick = wal_since(place, began) / (runs(place) - before)
    place.session.query("SELECT jobq.pause_schedule(NULL)")
    place.session.query(COPY)
    each = {"tick": round(tick, 1)}
    for name, sql in (("enqueue", ENQUEUE % (schedules - 1)), ("update", UPDATE)):
        for _ in range(WARM):
            place.session.query(sql)
        began = wal_position(place)
        for _ in range(rounds):
            place.session.query(sql)
        each[name] = round(wal_since(place, began) / rounds / schedules, 1)
    return {"jobs": rounds * schedules, "wal": each}, {}


def runs(place: Place) -> int:
    return int(place.session.value("SELECT sum(runs) FROM jobq.schedules"))


def wal_position(place: Place) -> str:
    return place.session.value("SELECT pg_current_wal_insert_lsn()")


def wal_since(place: Place, position: str) -> int:
    return int(place.session.value("SELECT pg_current_wal_insert_lsn() - '%s'" % position))
