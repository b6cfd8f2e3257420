/*
 * dispatcher_parts.c
 *	  The parts of the dispatcher that have memory or timers of their own.
 *
 * The order matters: executors in flight are counted in keys and limits, so
 * those come first.  What a turn does with the parts, and in which order, is
 * in dispatcher_turn.c.
 */
#include "jobq.h"

#include "dispatch/admission.h"
#include "dispatch/dispatcher_parts.h"
#include "dispatch/dispatcher_turn.h"
#include "dispatch/held_lanes.h"
#include "dispatch/inbox.h"
#include "dispatch/notify.h"
#include "dispatch/statistics.h"
#include "dispatch/unknown_prepared.h"
#include "dispatch/wakeup_filter.h"
#include "dispatch/why_answers.h"
#include "lanes/queue_scan.h"
#include "limits/concurrency_keys.h"
#include "limits/min_batch.h"
#include "limits/tenant_limit.h"
#include "maintenance/maintenance.h"
#include "pressure/pressure_rules.h"
#include "schedule/conductor_start.h"
#include "shared/crash_record.h"
#include "workers/cancel_requests.h"
#include "workers/claimers.h"
#include "workers/executor_pool.h"
#include "workers/executor_reports.h"
#include "workers/former_claims.h"
#include "workers/returned_jobs.h"
#include "workers/leases.h"
#include "workers/run_starts.h"
#include "workers/take_back.h"
#include "workers/worker_pool.h"

typedef struct DispatcherPart
{
	const char *name;
	void		(*init) (MemoryContext lasting, JobqDb *db);
	void		(*recover) (void);
	void		(*turn) (MonoTime now);	/* after the transaction of each turn */
	MonoTime	(*next_timer) (MonoTime now);
} DispatcherPart;

static JobqDb *db;

/* Returns the smallest concurrency_per_key of the running jobs of the key. */
static int
smallest_per_key(uint64 key)
{
	return Min(executors_per_key(key), leases_per_key(key));
}

static void
init_keys(MemoryContext lasting, JobqDb *mine)
{
	keys_init(lasting, smallest_per_key);
}

static MonoTime
batch_timer(MonoTime now)
{
	return mono_at(batch_gates_next_timer());
}

/* Marks the jobs that crashed with the server. */
static void
mark_suspects(void)
{
	Suspect		suspects[JOBQ_MAX_SLOTS];
	int			n = crash_record_take_suspects(db->dboid, suspects, JOBQ_MAX_SLOTS);

	for (int i = 0; i < n; i++)
		scan_mark(&suspects[i].id, ANY_REV, suspects[i].guilty ? 0 : REF_ALONE, suspects[i].guilty ? CHARGE_CRASHED : CHARGE_NONE);
}

static void
recover_leases(void)
{
	former_claims_recover();
	leases_suspect();
}

static const DispatcherPart parts[] = {
	{"turn", .init = dispatcher_turn_init},
	{"concurrency keys", .init = init_keys},
	{"tenant limits", .init = tenant_limits_init},
	{"lanes", .init = lanes_init},
	{"admission", .init = admission_init, .next_timer = admission_next_timer},
	{"batch gates", .next_timer = batch_timer},
	{"pressure", .init = pressure_init, .next_timer = pressure_next_timer},
	{"executors", .init = executors_init, .recover = executors_recover,
		.next_timer = executors_next_timer},
	{"leases", .init = leases_init, .recover = recover_leases},
	{"claimers", .init = claimers_init, .recover = claimers_recover},
	{"run starts", .init = run_starts_init},
	{"workers", .init = workers_init},
	{"returned jobs", .init = returned_jobs_init, .next_timer = returned_jobs_next_timer},
	{"taking back", .next_timer = take_back_next_timer},
	{"cancels", .init = cancels_init, .next_timer = cancels_next_timer},
	{"inbox", .init = inbox_init},
	{"wake-ups", .init = wakeup_filter_init},
	{"prepared transactions", .init = prepared_init, .recover = expect_unknown_prepared},
	{"answers to why", .init = why_init, .next_timer = why_next_timer},
	{"queue scan", .init = scan_init, .recover = mark_suspects},
	{"maintenance", .init = maintenance_schedule_init, .turn = maintenance_schedule_turn, .next_timer = maintenance_schedule_next_timer},
	{"conductor", .init = conductor_start_init, .turn = conductor_start_turn, .next_timer = conductor_start_next_timer},
	{"statistics", .init = statistics_init, .next_timer = statistics_next_timer},
	{"held lanes", .init = held_lanes_init},
	{"notifications", .init = notify_init, .turn = notify_turn, .next_timer = notify_next_timer}
};

void
parts_init(MemoryContext lasting, JobqDb *mine)
{
	db = mine;
	for (int i = 0; i < (int) lengthof(parts); i++)
	{
		if (parts[i].init != NULL)
			parts[i].init(lasting, mine);
	}
}

void
parts_recover(void)
{
	for (int i = 0; i < (int) lengthof(parts); i++)
	{
		if (parts[i].recover != NULL)
			parts[i].recover();
	}
}

void
parts_turn(MonoTime now)
{
	for (int i = 0; i < (int) lengthof(parts); i++)
	{
		if (parts[i].turn != NULL)
			parts[i].turn(now);
	}
}

MonoTime
parts_next_timer(MonoTime now)
{
	MonoTime	next = DT_NOEND;

	for (int i = 0; i < (int) lengthof(parts); i++)
	{
		if (parts[i].next_timer != NULL)
			next = Min(next, parts[i].next_timer(now));
	}
	return next;
}
