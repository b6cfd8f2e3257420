/*
 * settle_counts.c
 *	  Statistics of settlements: starts, ends, failures by kind, durations.
 *
 * The attempt of a SQL job is written when it ends, so its start is counted
 * then; that of a claimed job was counted with the claim.  A released attempt
 * counts as a start, as it counts in the row's runs, and has no duration.
 */
#include "jobq.h"

#include "settle/settle_counts.h"
#include "shared/stat_changes.h"

TimestampTz
due_since(Job *job)
{
	return Max(DatumGetTimestampTz(JOB_ATT(job, Q_position)), DatumGetTimestampTz(JOB_ATT(job, Q_scheduled_for)));
}

static bool
is_sqlstate(const char *code)
{
	return strlen(code) == 5 && strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5;
}

/* Returns the kind of a code of jobq's own. */
static StatFailure
kind_of_code(const char *code)
{
	static const struct
	{
		const char *code;
		StatFailure kind;
	}			codes[] = {
		{"timeout", FAILURE_TIMEOUT}, {"stalled", FAILURE_TIMEOUT}, {"lease_expired", FAILURE_LEASE},
		{"server_crash", FAILURE_CRASH}, {"helper_lost", FAILURE_CRASH}, {CODE_TERMINATED, FAILURE_CRASH},
		{"bad_output", FAILURE_OUTPUT}
	};

	for (int i = 0; i < (int) lengthof(codes); i++)
	{
		if (strcmp(codes[i].code, code) == 0)
			return codes[i].kind;
	}
	if (strncmp(code, "exit:", 5) == 0)
		return FAILURE_EXIT;
	if (strncmp(code, "signal:", 7) == 0)
		return FAILURE_SIGNAL;
	return is_sqlstate(code) ? FAILURE_ERROR : FAILURE_OTHER;
}

/* Handlers, tools and clients may give any code. */
static StatFailure
kind_of(const Outcome *o)
{
	if (o->code == NULL)
		return FAILURE_ERROR;
	if (o->code_given && strncmp(o->code, "exit:", 5) != 0)
		return FAILURE_ERROR;
	return kind_of_code(o->code);
}

static void
count_attempt(StatChanges *changes, const Outcome *o)
{
	int64		run;

	if (o->kind == OUTCOME_FAILED)
	{
		stat_add(changes, STAT_FAILED + (int) kind_of(o), 1);
		changes->failed = o->ended_at;
	}
	if (o->started_at == 0 || o->kind == OUTCOME_RELEASED)
		return;
	run = Max(o->ended_at - o->started_at, 0);
	stat_add(changes, STAT_RUN_US, run);
	stat_add(changes, STAT_RUN + stat_time_bucket(run), 1);
}

static void
count_end(StatChanges *changes, const Job *job, JobStatus status)
{
	static const StatCounter ends[JOB_NSTATUS] = {
		[JOB_COMPLETED] = STAT_COMPLETED, [JOB_SKIPPED] = STAT_SKIPPED,
		[JOB_CANCELLED] = STAT_CANCELLED, [JOB_ERROR] = STAT_DIED
	};
	int			attempts = JOB_INT(job, Q_attempts);

	stat_add(changes, ends[status], 1);
	stat_add(changes, (int) job->counted, -1);
	if (attempts == 0)
		return;
	stat_add(changes, STAT_ATTEMPTS_SUM, attempts);
	stat_add(changes, STAT_ATTEMPTS + stat_attempt_bucket(attempts), 1);
}

void
count_settlement(Job *job, const Outcome *o, JobStatus status, TimestampTz due)
{
	StatChanges *changes = stat_changes(JOB_INT(job, Q_type_id));

	if (changes == NULL)
		return;
	if (o->started_at != 0 && !o->begun)
		stat_add_start(changes, due, o->started_at);
	count_attempt(changes, o);
	if (status == JOB_RETRY && o->kind == OUTCOME_FAILED)
		stat_add(changes, STAT_RETRIED, 1);
	if (status < JOB_COMPLETED)
		return;
	count_end(changes, job, status);
	if (status == JOB_COMPLETED)
		changes->completed = o->ended_at;
}
