/*
 * hand_out_stop.c
 *	  The reasons for which a database hands out nothing.
 *
 *	 identity	a restored dump: its jobs run elsewhere, until jobq.adopt()
 *	 stop		the kill switch (kill_switch.c)
 *	 drain		jobq.drain() waits until nothing runs (kill_switch.c)
 *	 reload		ALTER DATABASE ... SET counts for new sessions only, so the
 *				dispatcher and its executors are replaced; jobs enqueued after
 *				the request expect the new settings
 *	 leases		a new dispatcher reads which jobs clients have (lane_reader.c)
 */
#include "jobq.h"

#include "storage/condition_variable.h"
#include "storage/ipc.h"

#include "dispatch/hand_out_stop.h"
#include "limits/kill_switch.h"
#include "tables/home.h"
#include "tables/queue_table.h"
#include "workers/cancel_requests.h"
#include "workers/former_claims.h"
#include "workers/leases.h"
#include "workers/take_back.h"

static JobqDb *db;
static int32 my_home = 0;

void
stop_init(JobqDb *mine)
{
	db = mine;
}

uint32
hand_out_stops(void)
{
	uint32		stops = 0;

	if (db->health.paused_identity)
		stops |= STOP_IDENTITY;
	if (db->kill_switch.stopped)
		stops |= STOP_SWITCH;
	if (db->kill_switch.draining)
		stops |= STOP_DRAIN;
	if (reload_is_due())
		stops |= STOP_RELOAD;
	if (leases_are_being_read())
		stops |= STOP_LEASES;
	return stops;
}

bool
may_hand_out(void)
{
	return hand_out_stops() == 0;
}

bool
identity_changed(void)
{
	int32		id = 0;
	bool		ours = home_is_ours(&id);
	bool		changed;

	if (!ours != db->health.paused_identity)
	{
		db->health.paused_identity = !ours;
		if (!ours)
			ereport(LOG,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("jobq: the queue was restored from elsewhere, nothing is handed out"),
					 errhint("Call jobq.adopt() to run its jobs here.")));
	}
	changed = id != my_home;
	my_home = id;
	return changed;
}

bool
identity_is_ours(void)
{
	return my_home != 0 && !db->health.paused_identity;
}

void
read_stop(void)
{
	char	   *reason;

	db->kill_switch.stopped = kill_switch_is_on(&reason, NULL, NoLock);
}

void
read_drain(void)
{
	db->kill_switch.draining = db->kill_switch.ndrains > 0;
	pg_memory_barrier();
}

void
stop_turn(void)
{
	if (!db->kill_switch.stopped && !db->kill_switch.draining)
		return;
	executors_take_back(false);
	leases_take_back_runs(true, 0);
	ConditionVariableBroadcast(&db->kill_switch.idle);
}

bool
reload_is_due(void)
{
	return db->requests.reload && !cancels_pending();
}

void
reload(void)
{
	executors_dismiss();
	db->requests.reload = false;
	db->lifecycle.wanted = true;
	proc_exit(0);
}
