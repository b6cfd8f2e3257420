"""The database of a run: job types, roles, history, live jobs, dead letters.

Everything in it was enqueued by jobq.enqueue_many and, except for what waits, has run: no row was inserted past jobq.
"""
import pathlib
import time
from typing import Any, Dict

from driver import clients
from driver.clients import Place
from driver.cluster import Cluster, psql, wait_until

from .client import PASSWORD, ROLE

OWN = 5   # types of driver/subjects.py (nap, noop, row), `broken`, and `crowd`, which clients would claim
PATIENCE = 3600

ROLES = """
CREATE ROLE {role} LOGIN PASSWORD '{password}';
GRANT USAGE ON SCHEMA bench TO {role};
SELECT count(jobq.grant_access('{role}', a)) FROM unnest('{{read,admin,enqueue}}'::text[]) a;
SELECT count(jobq.resume_job_type(t)) FROM unnest('{{noop,row}}'::text[]) t;
CREATE FUNCTION bench.timed(statement text, times int) RETURNS SETOF double precision LANGUAGE plpgsql AS $$
DECLARE
  began timestamptz;
BEGIN
  FOR i IN 1 .. times LOOP
    began := clock_timestamp();
    EXECUTE replace(statement, '{{i}}', i::text);
    RETURN NEXT extract(epoch FROM clock_timestamp() - began);
  END LOOP;
END $$;
"""

TYPES = """
CREATE FUNCTION bench.broken(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'host "db%%" has no route for request %%', payload->>'n', payload; END $$;
SELECT count(jobq.create_job_type('type' || lpad(i::text, 4, '0'), handler => 'bench.noop(jsonb)')) FROM generate_series(1, %d) i;
SELECT jobq.create_job_type('broken', handler => 'bench.broken(jsonb)', max_attempts => 1), jobq.create_job_type('crowd');
SELECT count(jobq.enqueue(t, '{"n": -1}')) FROM unnest('{nap,noop,row}'::text[]) t;
"""
# All jobs of a call are of one type; the next call is of the next one.
IN_TURN = """SELECT count(*) FROM jobq.enqueue_many('type' || lpad((1 + (($1::text[])[1]::jsonb->>'n')::bigint / %(bulk)d %% %(types)d)::text, 4, '0'),
 $1::jsonb[]%(more)s)"""
ONE_TYPE = "SELECT count(*) FROM jobq.enqueue_many('%s', $1::jsonb[])"
WAITING = "SELECT coalesce(sum(pending + running + retry), -1) FROM jobq.stat_job_types WHERE job_type LIKE '%s'"
PAUSE = "SELECT count(jobq.pause_job_type(name, 'for the benchmark')) FROM jobq.job_types WHERE name LIKE 'type%'"


def admit(server: Cluster) -> None:
    """Roles other than the superuser sign in with a password, as jobq-web demands."""
    hba = pathlib.Path(server.env["PGHOST"]) / "data" / "pg_hba.conf"
    hba.write_text("local all,replication postgres trust\nlocal all all scram-sha-256\n")
    psql(server.env, "SELECT pg_reload_conf()")


def admit_role(place: Place) -> None:
    """The role that signs in to jobq-web."""
    place.session.query(ROLES.format(role=ROLE, password=PASSWORD))


def drained(place: Place, types: str) -> None:
    """Waits until no job of these types waits or runs."""
    wait_until(lambda: float(place.session.value(WAITING % types)) == 0, "jobs of %s run" % types, PATIENCE, 0.2)


def run_jobs(place: Place, p: Dict[str, Any]) -> None:
    """Makes the types; jobs of all of them, completed; jobs of one, dead."""
    place.session.query(TYPES % (p["types"] - OWN))
    in_turn = IN_TURN % {"bulk": p["bulk"], "types": p["types"] - OWN, "more": ""}
    clients.feed(place, "", in_turn, jobs=p["history"], bulk=p["bulk"], connections=2)
    drained(place, "type%")
    clients.feed(place, "", ONE_TYPE % "broken", jobs=p["dead"], bulk=p["bulk"])
    drained(place, "broken")


def let_wait(place: Place, p: Dict[str, Any]) -> None:
    """Live jobs: half of them due in one type, four tenths due in types that are paused, the rest due tomorrow, with tenants."""
    place.session.query(PAUSE)
    clients.feed(place, "", ONE_TYPE % "crowd", jobs=p["live"] // 2, bulk=p["bulk"])
    types = p["types"] - OWN
    for jobs, more in ((p["live"] * 4 // 10, ""), (p["live"] // 10, ", delay => '1 day', tenant => 'tenant' || (($1::text[])[1]::jsonb->>'n')")):
        bulk = max(1, min(p["bulk"], jobs // types))
        clients.feed(place, "", IN_TURN % {"bulk": bulk, "types": types, "more": more}, jobs=jobs, bulk=bulk)
    clients.make_ready(place)


def fill(place: Place, p: Dict[str, Any]) -> Dict[str, Any]:
    """All of it; returns numbers and times."""
    began, found = time.monotonic(), {key: p[key] for key in ("types", "history", "live", "dead")}
    run_jobs(place, p)
    ran = time.monotonic()
    let_wait(place, p)
    return {**found, "ran_seconds": round(ran - began, 1), "waiting_seconds": round(time.monotonic() - ran, 1)}
