/*
 * run_begin.c
 *	  The start of a run, for the conductor and for jobq.run_inline: its row says
 *	  running, then its steps become tasks.
 */
#include "jobq.h"

#include "access/xact.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/clock.h"
#include "base/job_status.h"
#include "settle/settle_counts.h"
#include "shared/stat_changes.h"
#include "workflow/edges.h"
#include "workflow/run_begin.h"

#define TURN_US			INT64CONST(50000)

static MonoTime turn_end = 0;	/* 0: not the conductor's */

static void
set(Job *job, int att, Datum value)
{
	JOB_ATT(job, att) = value;
	job->nulls[att - 1] = false;
}

void
run_write_begin(Ledger *ledger, Job *job, const char *worker)
{
	TimestampTz now = GetCurrentTimestamp();

	set(job, Q_status, ObjectIdGetDatum(status_oid(JOB_RUNNING)));
	set(job, Q_started_at, TimestampTzGetDatum(now));
	set(job, Q_worker, CStringGetTextDatum(worker));
	job->nulls[Q_cancel_requested - 1] = true;
	set(job, Q_rev, Int32GetDatum(JOB_INT(job, Q_rev) + 1));
	set(job, Q_attempts, Int32GetDatum(JOB_INT(job, Q_attempts) + 1));
	set(job, Q_runs, Int32GetDatum(JOB_INT(job, Q_runs) + 1));
	queue_update(&ledger->queue, job);
	stat_started(JOB_INT(job, Q_type_id), due_since(job), now);
}

void
runs_begin(const pg_uuid_t *ids, int n)
{
	CommandCounterIncrement();
	(void) run_sql_for_ids("SELECT jobq_internal._start_run(r) FROM unnest($1) r", ids, n);
}

void
run_turn_begins(void)
{
	turn_end = mono_now() + TURN_US;
}

bool
run_turn_is_over(void)
{
	return turn_end != 0 && mono_now() >= turn_end;
}
