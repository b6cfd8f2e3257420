"""The readings of a run, each a function (Scene) -> metrics.  run takes them in the order of PLAN, in one database.

Times are seconds; a figure of many has p50, p95, p99, max and n.
"""
import gzip
import os
import re
import signal
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Sequence
from urllib.parse import quote

from driver import clients, measure, workloads
from driver.clients import Place
from driver.cluster import Cluster, Session, psql

from . import client, fill
from .client import PASSWORD, ROLE, Web

Metrics = Dict[str, Any]
GZIP = "Accept-Encoding: gzip"


class NotThere(Exception):
    """This jobq-web does not have what a reading needs."""


@dataclass
class Scene:
    """What all readings share: the server, its database, the sizes of the level."""
    server: Cluster
    place: Place
    p: Dict[str, Any]

    def web(self):
        return client.running(self.server, self.place.env, self.place.work)

    def as_ops(self) -> Session:
        """SQL as the role that signs in to jobq-web."""
        return Session({**self.place.env, "PGUSER": ROLE, "PGPASSWORD": PASSWORD})


def spread(values: Iterable[float]) -> Metrics:
    """Quantiles and how many there were."""
    values = list(values)
    return {**measure.quantiles(values), "n": len(values)}


def answer(reply: client.Reply) -> Any:
    """The JSON of a reply that must be there."""
    if reply.status in (404, 501):
        raise NotThere("status %d" % reply.status)
    if reply.status != 200:
        raise RuntimeError("status %d: %s" % (reply.status, reply.text()[:300].decode(errors="replace")))
    return reply.json()


# --- the page -------------------------------------------------------------------------------------

# What the first screen needs: a module that app.js imports when it is shown, and two answers.
# After its first paint it reads the rest.
SCREEN = "overview.js"
FIRST_ANSWERS = ("/api/v1/session", "/api/v1/overview")
LATER = ("trends.js",)
LATER_ANSWERS = ("/api/v1/workers", "/api/v1/lanes", "/api/v1/errors?max_rows=8", "/admin/resources", "/api/v1/series?step=10%20seconds",
                 "/api/v1/alerts", "/api/v1/audit")
LINK = re.compile(rb"""(?:src|href)="(assets/[^"]+)\"""")
IMPORT = re.compile(rb"""^\s*(?:import|export)\b[^;'"()]*['"](\.[^'"]+)['"]""", re.M)


def page(scene: Scene) -> Metrics:
    """The first opening: the files by their links and imports, the answers of its first screen; sizes as they come."""
    with scene.web() as web, web.connection() as connection:
        first: Dict[str, int] = {}
        read_file(connection, "", first)
        if connection.get("/assets/" + SCREEN).status != 200:
            raise NotThere("the page has no " + SCREEN)
        read_file(connection, "assets/" + SCREEN, first)
        later = dict(first)
        for name in LATER:
            read_file(connection, "assets/" + name, later)
        answers = {}
        for path in FIRST_ANSWERS + LATER_ANSWERS:
            reply = connection.get(path, GZIP)
            answer(reply)
            answers[path] = len(reply.body)
    files, rest = sum(first.values()), sum(later.values()) - sum(first.values())
    return {"types": int(scene.place.session.value("SELECT count(*) FROM jobq.stat_job_types")),
            "requests": len(first) + len(FIRST_ANSWERS), "files_bytes": files, "answers_bytes": sum(answers[a] for a in FIRST_ANSWERS),
            "bytes": files + sum(answers[a] for a in FIRST_ANSWERS),
            "later": {"requests": len(later) - len(first) + len(LATER_ANSWERS), "bytes": rest + sum(answers[a] for a in LATER_ANSWERS)}}


def read_file(connection: client.Connection, path: str, found: Dict[str, int]) -> None:
    """Adds a file of the page and the ones that it loads at once."""
    if path in found:
        return
    reply = connection.get("/" + path, GZIP)
    if reply.status != 200:
        raise RuntimeError("/%s: status %d" % (path, reply.status))
    found[path] = len(reply.body)
    text, folder = reply.text(), os.path.dirname(path)
    named = [m.decode() for m in LINK.findall(text)] if path == "" else []
    named += [os.path.normpath(os.path.join(folder, m.decode())) for m in IMPORT.findall(text)] if path.endswith(".js") else []
    for each in named:
        read_file(connection, each, found)


# --- idle, streams --------------------------------------------------------------------------------

def idle(scene: Scene) -> Metrics:
    """jobq-web after its start, and after a connection has come and gone: memory, wake-ups a second."""
    found: Metrics = {}
    with scene.web() as web:
        for name in "fresh", "used":
            if name == "used":
                with web.connection() as connection:
                    answer(connection.get("/api/v1/overview"))
            time.sleep(scene.p["settle"])
            woken, cpu, since = measure.context_switches(web.pid), web.cpu(), time.monotonic()
            time.sleep(scene.p["idle"])
            passed = time.monotonic() - since
            found[name] = {"bytes": web.memory(), "private_bytes": measure.private_bytes(web.pid), "seconds": round(passed, 1),
                           "wakeups": round((measure.context_switches(web.pid) - woken) / passed, 3), "cpu": round((web.cpu() - cpu) / passed, 4)}
    return found


# Calls of statements of the role that look at statistics of types.
QUERIES = """SELECT coalesce(sum(s.calls), 0), coalesce(max(s.mean_exec_time) / 1000, 0) FROM bench.pg_stat_statements s
 JOIN pg_roles r ON r.oid = s.userid WHERE r.rolname = '%s' AND s.query LIKE '%%stat_job_types%%'""" % ROLE
COUNTED = "ALTER ROLE %s SET pg_stat_statements.track = 'top'; ALTER ROLE %s SET compute_query_id = 'on'" % (ROLE, ROLE)
UNCOUNTED = "ALTER ROLE %s RESET ALL" % ROLE


def streams(scene: Scene) -> Metrics:
    """Many streams of one role while jobs run: memory and CPU of jobq-web, overviews, queries."""
    p = scene.p
    psql(scene.place.env, COUNTED)
    try:
        with scene.web() as web:
            with web.connection() as connection:
                if connection.get("/api/v1/openapi.json").text().find(b"/api/v1/stream\"") < 0:
                    raise NotThere("no route /api/v1/stream")
            jobs = clients.feeding(scene.place, "row", {"rate": p["background"], "seconds": 3600})
            opened = client.Streams(web, p["streams"])
            try:
                time.sleep(p["settle"])
                calls, cpu = scene.place.session.value(QUERIES).split("|")[0], web.cpu()
                overviews, received, since = opened.overviews, opened.bytes, time.monotonic()
                time.sleep(p["streaming"])
                passed = time.monotonic() - since
                sent = (opened.overviews - overviews) * p["streams"] / opened.unpacked
                cpu, memory = web.cpu() - cpu, web.memory()
                after, mean = scene.place.session.value(QUERIES).split("|")
                return {"streams": p["streams"], "closed": opened.closed, "types": int(scene.place.session.value("SELECT count(*) FROM jobq.stat_job_types")),
                        "bytes": memory, "private_bytes": measure.private_bytes(web.pid), "cpu": round(cpu / passed, 4),
                        "queries": round((int(after) - int(calls)) / passed, 3), "query_seconds": round(float(mean), 6),
                        "overviews": round(sent / passed / p["streams"], 3),
                        "event_bytes": round((opened.bytes - received) / max(1, sent))}
            finally:
                opened.close()
                end_load(scene.place, jobs)
    finally:
        psql(scene.place.env, UNCOUNTED)


def end_load(place: Place, program: Any) -> Dict[str, Any]:
    """Ends load before its time; its calls so far are its result."""
    program.send_signal(signal.SIGTERM)
    return clients.finish(place, program, 60)


# --- statistics in SQL ----------------------------------------------------------------------------

TABLE_READS = """SELECT coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0) FROM pg_stat_xact_all_tables
 WHERE schemaname IN ('jobq', 'jobq_internal')"""


def timed(scene: Scene, statement: str, calls: int) -> Metrics:
    """A statement many times in one session, and once in each of some new ones."""
    call = "SELECT bench.timed($$%s$$, %d)"
    with scene.as_ops() as session:
        session.query(call % (statement, 3))
        times = [float(t) for t in session.query(call % (statement, calls))]
    first = []
    for _ in range(5):
        with scene.as_ops() as session:
            first.append(float(session.value(call % (statement, 1))))
    return {"seconds": spread(times), "first": spread(first)}


def metrics(scene: Scene) -> Metrics:
    """jobq.metrics(): time, table reads of a call, size; and GET /metrics."""
    found = timed(scene, "SELECT jobq.metrics()", scene.p["calls"])
    with scene.as_ops() as session:
        session.query("SELECT length(jobq.metrics())")
        before, after = session.query("BEGIN; %s; SELECT length(jobq.metrics()) \\g /dev/null\n%s; COMMIT;" % (TABLE_READS, TABLE_READS))
        text = "\n".join(session.query("SELECT jobq.metrics()"))
    found.update(table_reads=int(after) - int(before), bytes=len(text), gzip_bytes=len(gzip.compress(text.encode(), 6)),
                 series=sum(not line.startswith("#") for line in text.splitlines()))
    with scene.web() as web, web.connection() as connection:
        replies = [connection.get("/metrics", GZIP) for _ in range(min(40, scene.p["calls"]))]
    if any(reply.status != 200 for reply in replies):
        raise RuntimeError("/metrics: status %s" % {reply.status for reply in replies})
    found["http"] = {"seconds": spread(reply.seconds for reply in replies), "bytes": len(replies[0].body)}
    return found


VIEWS = ("stat_job_types", "stat_workers", "stat_lanes", "stat_limits")


def views(scene: Scene) -> Metrics:
    """Each view of statistics, whole."""
    return {view: timed(scene, "SELECT * FROM jobq.%s" % view, scene.p["calls"]) for view in VIEWS}


SOME_IDS = "SELECT id FROM jobq.queue WHERE %s ORDER BY md5(id::text) LIMIT %d"
WHY_OF = {"due": "type_id = (SELECT id FROM jobq.job_types WHERE name = 'crowd')",
          "paused": "type_id IN (SELECT id FROM jobq.job_types WHERE name LIKE 'type%') AND scheduled_for <= clock_timestamp()",
          "delayed": "scheduled_for > clock_timestamp()"}


def why(scene: Scene) -> Metrics:
    """jobq.why() of waiting jobs taken at random: due in one deep lane, of paused types, of tomorrow."""
    found: Metrics = {"live": scene.p["live"]}
    for name, condition in WHY_OF.items():
        ids = scene.place.session.query(SOME_IDS % (condition, scene.p["calls"]))
        statement = "SELECT jobq.why((ARRAY['%s'])[{i}]::uuid)" % "','".join(ids)
        with scene.as_ops() as session:
            session.query("SELECT bench.timed($$%s$$, 3)" % statement)
            found[name] = spread(float(t) for t in session.query("SELECT bench.timed($$%s$$, %d)" % (statement, len(ids))))
    return found


# --- the API under load ---------------------------------------------------------------------------

LISTED = ("pending", "blocked", "retry", "running", "error")   # live, and dead
# In their order: nothing matches but the first two, so that a list without an index reads all.
FILTERS = {"status": "status=completed", "job_type": "job_type=type0001", "type_and_status": "job_type=broken&status=completed", "tenant": "tenant=nobody",
           "payload": "payload_contains=" + quote('{"n": -7}'), "error": "error_like=" + quote("%nothing like this%")}
ONE = {"one_live": "SELECT id FROM jobq.queue LIMIT %d", "one_dead": "SELECT id FROM jobq.dead_letters LIMIT %d",
       "one_past": "SELECT id FROM jobq.history TABLESAMPLE BERNOULLI ({share}) LIMIT %d"}
LOAD_BULK = 10   # jobs of a call of load


def requests(scene: Scene, web: Web) -> List[Any]:
    """(name, paths) of what must be fast.  A cursor is a key and the mark of its list."""
    share = str(min(100, 2e5 / scene.p["history"]))   # percent
    ids = {name: scene.place.session.query(sql.replace("{share}", share) % 100) for name, sql in ONE.items()}
    found = [(name, ["/api/v1/jobs/" + i for i in each]) for name, each in ids.items()]
    found += [("overview", ["/api/v1/overview"]), ("list", ["/api/v1/jobs"])]
    found += [("list_" + status, ["/api/v1/jobs?status=" + status]) for status in LISTED]
    with web.connection() as connection:
        mark = connection.get("/api/v1/jobs?limit=1").json()["next"].split("_")[1]
    return found + [("list_page", ["/api/v1/jobs?cursor=%s_%s" % (i, mark) for i in ids["one_past"]])]


def api(scene: Scene) -> Metrics:
    """Requests at a fixed rate, then lists by other filters one by one, all while jobs run at theirs."""
    p, place = scene.p, scene.place
    with scene.web() as web:
        wanted = requests(scene, web)
        if any(not paths for _, paths in wanted):
            raise RuntimeError("nothing to ask for: %s" % [name for name, paths in wanted if not paths])
        jobs = clients.feeding(place, "row", {"rate": p["rate"], "seconds": 3600, "connections": 16, "bulk": LOAD_BULK}, ROWS)
        time.sleep(p["settle"])
        client.offer(web, wanted, p["asked"], len(wanted) * 2 / p["asked"], 8)
        done, cpu_web, cpu_server, since = ran(place), web.cpu(), measure.cpu_seconds(place.roots), time.monotonic()
        offered = client.offer(web, wanted, p["asked"], p["seconds"], 8)
        passed = time.monotonic() - since
        found: Metrics = {
            "live": p["live"], "history": int(place.session.value("SELECT sum(completed) FROM jobq.stat_job_types")),
            "rate": round((ran(place) - done) / passed, 1), "asked": p["asked"], "memory_bytes": web.memory(),
            "cpu": {"web": round((web.cpu() - cpu_web) / passed, 4), "server": round((measure.cpu_seconds(place.roots) - cpu_server) / passed, 4),
                    "client": round(offered.cpu / passed, 4)},
            "refused": sum(offered.refused.values()), "late": spread(offered.late), "seconds": {name: spread(times) for name, times in offered.seconds.items()},
            "reply_bytes": offered.bytes}
        found["filters"] = filters(web, p["filters"])
        load = end_load(place, jobs)
        found["load"] = {"calls": load["calls"], "cpu": round(load["cpu"] / load["seconds"], 4), "rate": round(load["jobs"] / load["seconds"], 1)}
    return found


ROWS = "SELECT count(*) FROM jobq.enqueue_many('row', $1::jsonb[])"


def ran(place: Place) -> int:
    return int(place.session.value("SELECT completed FROM jobq.stat_job_types WHERE job_type = 'row'"))


def filters(web: Web, rounds: int) -> Metrics:
    """Lists by filters that no index serves: time, and whether the reply says how far it has searched."""
    found: Metrics = {}
    with web.connection() as connection:
        for name, query in FILTERS.items():
            replies = [connection.get("/api/v1/jobs?" + query) for _ in range(rounds)]
            whole = [reply.json() if reply.status == 200 else {} for reply in replies]
            found[name] = {"seconds": spread(reply.seconds for reply in replies), "failed": sum(reply.status != 200 for reply in replies),
                           "searched_to": sum("searched_to" in each for each in whole), "items": len(whole[-1].get("items", []))}
    return found


# --- bulk actions ---------------------------------------------------------------------------------

def bulk(scene: Scene) -> Metrics:
    """All dead letters are retried while their type is paused, then again while it runs: pickup of other jobs before and meanwhile."""
    place = scene.place
    found: Metrics = {"dead": scene.p["dead"], "before": pickup(place, scene.p["seconds"])}
    with scene.web() as web, web.connection() as connection:
        for name, call in (("paused", "pause"), ("running", "resume")):
            if name == "running":
                place.session.query("SELECT jobq.resume_job_type('broken')")
                fill.drained(place, "broken")
            place.session.query("SELECT jobq.%s_job_type('broken')" % call)
            found[name] = beside(scene, web, connection)
    found["after"] = pickup(place, scene.p["seconds"])
    return found


def pickup(place: Place, seconds: float) -> Metrics:
    """Pickup of one-row jobs beside nothing else."""
    jobs = begin_pickup(place, seconds)
    return end_pickup(place, clients.finish(place, jobs))


def begin_pickup(place: Place, seconds: float) -> Any:
    place.session.query("TRUNCATE bench.result")
    return clients.feeding(place, "row", {"rate": PICKED, "seconds": seconds, "connections": 4, "times": place.work / "times"})


def end_pickup(place: Place, load: Dict[str, Any]) -> Metrics:
    clients.wait_for_rows(place, load["jobs"])
    return {"latency": {**workloads.latencies(place, "call")["latency"], "n": load["jobs"]}}


PICKED = 200   # jobs a second


def beside(scene: Scene, web: Web, connection: client.Connection) -> Metrics:
    """A retry of all dead letters of a type, and the pickup of other jobs until its end."""
    place = scene.place
    preview = answer(connection.ask("POST", "/api/v1/bulk", {"action": "retry", "filter": {"job_type": "broken"}}))
    jobs, cpu_web, cpu_server, since = begin_pickup(place, 3600), web.cpu(), measure.cpu_seconds(place.roots), time.monotonic()
    state = answer(connection.ask("POST", "/api/v1/bulk/" + preview["token"], {}))
    while state["state"] == "running":
        time.sleep(0.1)
        state = answer(connection.get("/api/v1/bulk/" + preview["token"]))
    passed = time.monotonic() - since
    used = {"web": round(web.cpu() - cpu_web, 3), "server": round(measure.cpu_seconds(place.roots) - cpu_server, 3)}
    found = end_pickup(place, end_load(place, jobs))
    whole = state["state"] == "done" and state["done"] >= scene.p["dead"]
    return {**found, "failed": int(not whole), "state": state, "jobs": state["done"], "seconds": round(passed, 3), "rate": round(state["done"] / passed, 1), "cpu": used}


class Reading(NamedTuple):
    """A reading, by its name in raw.json; needs: what must be in the database before."""
    name: str
    take: Callable[[Scene], Metrics]
    filled: bool = True


PLAN: Sequence[Reading] = (
    Reading("idle", idle, False), Reading("page_few", page, False), Reading("streams_few", streams, False),
    Reading("fill", lambda scene: fill.fill(scene.place, scene.p), False),
    Reading("metrics", metrics), Reading("views", views), Reading("why", why), Reading("page", page), Reading("streams", streams),
    Reading("api", api), Reading("bulk", bulk))
