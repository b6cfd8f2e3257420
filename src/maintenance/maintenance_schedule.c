/*
 * maintenance_schedule.c
 *	  When the dispatcher asks maintenance for which task.
 *
 * Each task has an interval (maintenance_tasks.c).  Partitions are due at
 * once, too, when job types, the names of roles or the database's identity
 * have changed, and again soon after a run that left something to do; the
 * other tasks of the clock when the configuration was read again.  Timers are
 * monotonic.
 */
#include "jobq.h"

#include "utils/timestamp.h"

#include "maintenance/maintenance.h"
#include "pressure/signal_condition.h"
#include "shared/child_process.h"

#define AGAIN_US			INT64CONST(100000)	/* after a failure, or without a free
												 * worker; doubled up to 25 s */
#define MAX_AGAIN_SHIFT		8

static JobqDb *db;
static MonoTime due[MAINTENANCE_TASKS];
static MonoTime next_start = 0;	/* not before */
static int	starts_failed = 0;	/* in a row */
static uint32 failures_seen = 0;

void
maintenance_schedule_init(MemoryContext context, JobqDb *mine)
{
	MonoTime	now = mono_now();

	db = mine;
	failures_seen = pg_atomic_read_u32(&db->maintenance.failures);
	for (int i = 0; i < MAINTENANCE_TASKS; i++)
		due[i] = now + USECS_PER_SEC;
	due[TASK_CONDITION] = 0;
	due[TASK_PARTITIONS] = now + maintenance_tasks[TASK_PARTITIONS].every();
}

void
maintenance_partitions_soon(void)
{
	due[TASK_PARTITIONS] = 0;
}

void
maintenance_soon(void)
{
	for (int i = 0; i < MAINTENANCE_TASKS; i++)
	{
		if (i != TASK_PARTITIONS)
			due[i] = 0;
	}
}

static MonoTime
due_at(int task)
{
	bool		(*wanted) (JobqDb *) = maintenance_tasks[task].wanted;

	if (pg_atomic_read_u32(&db->maintenance.asked) & (1 << task))
		return DT_NOEND;		/* asked already */
	return wanted == NULL || wanted(db) ? due[task] : DT_NOEND;
}

static MonoTime
again(MonoTime now, int failures)
{
	return now + (AGAIN_US << Min(failures, MAX_AGAIN_SHIFT));
}

static void
look_at_failures(MonoTime now)
{
	uint32		failures = pg_atomic_read_u32(&db->maintenance.failures);

	if (failures != failures_seen && failures > 0)
		due[TASK_PARTITIONS] = again(now, (int) failures);
	failures_seen = failures;
}

void
maintenance_schedule_turn(MonoTime now)
{
	uint32		asked = 0;

	look_at_failures(now);
	condition_terminate_overdue(db, now);
	for (int i = 0; i < MAINTENANCE_TASKS; i++)
	{
		if (due_at(i) > now)
			continue;
		asked |= 1 << i;
		due[i] = now + maintenance_tasks[i].every();
	}
	if (asked != 0)
		(void) pg_atomic_fetch_or_u32(&db->maintenance.asked, asked);
	if (pg_atomic_read_u32(&db->maintenance.asked) == 0 || now < next_start)
		return;
	if (maintenance_start(db) || db->maintenance.child.busy)
		starts_failed = 0;
	else
		next_start = again(now, ++starts_failed);
}

MonoTime
maintenance_schedule_next_timer(MonoTime now)
{
	const ChildProcess *child = &db->maintenance.child;
	MonoTime	next = DT_NOEND;

	for (int i = 0; i < MAINTENANCE_TASKS; i++)
		next = Min(next, due_at(i));
	if (child->busy && child->pid == 0)
		next = Min(next, child->started + CHILD_COME_US);
	else if (child->busy)
		next = Min(next, condition_must_end(db));
	else if (pg_atomic_read_u32(&db->maintenance.asked) != 0)
		next = Min(next, next_start);
	return next;
}
