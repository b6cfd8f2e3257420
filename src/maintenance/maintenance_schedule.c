/*
 * maintenance_schedule.c
 *	  When the dispatcher starts the processes for work that it must not wait
 *	  for: partitions (maintenance.c) and housekeeping (housekeeping.c).
 *
 * Maintenance runs every ten minutes, at once when a job has found no
 * partition for its history row, and again soon after a failure.  Housekeeping
 * runs every minute, and when clients have opened or closed a breaker or the
 * rows have to be counted anew.
 */
#include "jobq.h"

#include "utils/timestamp.h"

#include "maintenance/housekeeping.h"
#include "maintenance/maintenance.h"
#include "maintenance/maintenance_schedule.h"
#include "shared/breaker.h"

#define MAINTENANCE_US		(600 * USECS_PER_SEC)
#define AGAIN_US			INT64CONST(100000)	/* one runs already, or no
												 * worker is free */
#define MAX_AGAIN_SHIFT		8
#define CHORES_US			USECS_PER_MINUTE
#define CHORES_AGAIN_US		(5 * USECS_PER_SEC) /* one runs still, or no
												 * worker is free */

static JobqDb *db;
static TimestampTz partition_need = 0;
static MonoTime next_maintenance = 0;
static MonoTime next_chores = 0;
static MonoTime next_breaker_chores = 0;	/* not before */
static uint32 maintenance_seen = 0;
static uint32 maintenance_failed_seen = 0;
static int	maintenance_failures = 0;	/* in a row */

void
maintenance_schedule_init(MemoryContext context, JobqDb *mine)
{
	MonoTime	now = mono_now();

	db = mine;
	maintenance_seen = db->maintenance.done;
	maintenance_failed_seen = db->maintenance.failed;
	next_maintenance = now + MAINTENANCE_US;
	next_chores = now + USECS_PER_SEC;
}

void
request_partition(TimestampTz need)
{
	partition_need = need;
	next_maintenance = 0;
}

void
maintenance_refresh_names(void)
{
	next_maintenance = 0;
}

bool
maintenance_is_done(void)
{
	bool		done = db->maintenance.done != maintenance_seen;

	if (done)
		maintenance_failures = 0;
	maintenance_seen = db->maintenance.done;
	return done;
}

bool
maintenance_fails(void)
{
	return maintenance_failures > 1;
}

static void
see_to_partitions(MonoTime now)
{
	if (db->maintenance.failed != maintenance_failed_seen)
	{
		maintenance_failed_seen = db->maintenance.failed;
		next_maintenance = now + (AGAIN_US << Min(++maintenance_failures, MAX_AGAIN_SHIFT));
		if (partition_need == 0)
			partition_need = db->maintenance.need;
	}
	if (now < next_maintenance)
		return;
	if (maintenance_start(db, partition_need))
	{
		next_maintenance = now + MAINTENANCE_US;
		partition_need = 0;
	}
	else
		next_maintenance = now + AGAIN_US;
}

static MonoTime
chores_timer(void)
{
	return breakers_have_changes(db) || db->stats.count_due ? Min(next_chores, next_breaker_chores) : next_chores;
}

static void
see_to_chores(MonoTime now)
{
	if (now < chores_timer())
		return;
	next_chores = now + (chores_start(db) ? CHORES_US : CHORES_AGAIN_US);
	next_breaker_chores = now + CHORES_AGAIN_US;
}

void
maintenance_schedule_turn(MonoTime now)
{
	see_to_partitions(now);
	see_to_chores(now);
}

MonoTime
maintenance_schedule_next_timer(MonoTime now)
{
	return Min(next_maintenance, chores_timer());
}

void
maintenance_soon(void)
{
	next_chores = 0;
}
