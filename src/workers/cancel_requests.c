/*
 * cancel_requests.c
 *	  Requests to cancel jobs that run, or ran at the time of the request.
 *
 * A request is taken from shared memory under the database's spinlock and kept
 * here until it is served.  A job that an executor has begun gets the cancel
 * in its cell.  A job that waits again is handed to an executor to be settled
 * as cancelled; until one takes it, it is a pending cancel.
 */
#include "jobq.h"

#include "utils/timestamp.h"

#include "base/grow_array.h"
#include "lanes/lane_callbacks.h"
#include "limits/type_state.h"
#include "workers/assign_job.h"
#include "workers/cancel_requests.h"
#include "workers/executor_pool.h"
#include "workers/leases.h"
#include "workers/returned_jobs.h"

typedef struct PendingCancel
{
	JobRef		ref;
	CancelRequest request;
	RoleState  *waits_for;		/* counted in its cancels; NULL: not yet */
} PendingCancel;

typedef struct LateRequest
{
	CancelRequest request;
	MonoTime	not_before;
} LateRequest;

static JobqDb *db;
static MemoryContext lasting;
static PendingCancel *pending_cancels;
static int	npending = 0;
static int	pending_size = 0;
static CancelRequest *requests;		/* to be run */
static int	nrequests = 0;
static int	requests_size = 0;
static LateRequest *late;		/* to be run then */
static int	nlate = 0;
static int	late_size = 0;

void
cancels_init(MemoryContext context, JobqDb *mine)
{
	lasting = context;
	db = mine;
}

bool
cancels_pending(void)
{
	return npending > 0 || nrequests > 0;
}

/* ---------- requests ---------- */

static void
add_request(const CancelRequest *c)
{
	if (nrequests == requests_size)
		requests = grow_array(lasting, requests, &requests_size, sizeof(CancelRequest));
	requests[nrequests++] = *c;
}

static CancelRequest
make_request(const pg_uuid_t *id, const char *reason)
{
	CancelRequest c;

	memset(&c, 0, sizeof(c));
	c.id = *id;
	c.has_reason = reason != NULL;
	if (reason)
		strlcpy(c.reason, reason, sizeof(c.reason));
	return c;
}

void
cancel_after_all(const pg_uuid_t *id, const char *reason)
{
	CancelRequest c = make_request(id, reason);

	add_request(&c);
}

void
cancel_later(const pg_uuid_t *id, const char *reason, MonoTime not_before)
{
	if (nlate == late_size)
		late = grow_array(lasting, late, &late_size, sizeof(LateRequest));
	late[nlate++] = (LateRequest) {make_request(id, reason), not_before};
}

/* Adds late requests whose time has come. */
static void
take_late(void)
{
	MonoTime	now = nlate > 0 ? mono_now() : 0;
	int			kept = 0;

	for (int i = 0; i < nlate; i++)
	{
		if (late[i].not_before <= now)
			add_request(&late[i].request);
		else
			late[kept++] = late[i];
	}
	nlate = kept;
}

MonoTime
cancels_next_timer(MonoTime now)
{
	MonoTime	next = DT_NOEND;

	for (int i = 0; i < nlate; i++)
		next = Min(next, late[i].not_before);
	return next;
}

void
cancels_take(void)
{
	int			n;

	take_late();
	if (db->requests.ncancels == 0)
		return;
	while (requests_size < nrequests + JOBQ_MAX_CANCELS + JOBQ_KEPT_CANCELS)
		requests = grow_array(lasting, requests, &requests_size, sizeof(CancelRequest));
	SpinLockAcquire(&db->mutex);
	n = Min(db->requests.ncancels, Max(JOBQ_KEPT_CANCELS - nrequests - nlate - npending, 0));
	memcpy(&requests[nrequests], db->requests.cancels, sizeof(CancelRequest) * n);
	db->requests.ncancels -= n;
	memmove(db->requests.cancels, &db->requests.cancels[n], sizeof(CancelRequest) * db->requests.ncancels);
	SpinLockRelease(&db->mutex);
	nrequests += n;
}

/*
 * Gives a request back to shared memory, with the mutex held; false: there is
 * no room.
 */
static bool
give_back(const CancelRequest *c)
{
	if (db->requests.ncancels + db->requests.nreserved >= (int) lengthof(db->requests.cancels))
		return false;
	db->requests.cancels[db->requests.ncancels++] = *c;
	return true;
}

void
cancels_leave(void)
{
	int			lost = 0;

	if (db == NULL)
		return;
	SpinLockAcquire(&db->mutex);
	for (int i = 0; i < nrequests; i++)
		lost += !give_back(&requests[i]);
	for (int i = 0; i < nlate; i++)
		lost += !give_back(&late[i].request);
	for (int i = 0; i < npending; i++)
		lost += !give_back(&pending_cancels[i].request);
	SpinLockRelease(&db->mutex);
	if (lost > 0)
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("jobq: %d cancels are lost with the dispatcher", lost)));
}

/* ---------- one request ---------- */

static void
add_pending_cancel(const JobRef *ref, const CancelRequest *c)
{
	PendingCancel *p;
	bool		found;
	Known	   *k = known_insert(known_jobs, ref->id, &found);

	held_drop(&ref->id);
	k->where = HELD;			/* its versions in a lane are stale now */
	k->rev = ref->rev;
	if (!found)
		k->again = false;
	if (npending == pending_size)
		pending_cancels = grow_array(lasting, pending_cancels, &pending_size, sizeof(PendingCancel));
	p = &pending_cancels[npending++];
	p->ref = *ref;
	p->ref.flags |= REF_CANCEL;
	p->request = *c;
	p->waits_for = NULL;
}

/*
 * Cancels a job that an executor has; one that has not begun is taken back.
 * False: no executor has it.
 */
static bool
cancel_handed_out(const pg_uuid_t *id, CancelKind kind, const char *reason)
{
	int			cell;
	Slot	   *slot = slot_find_job(db->dboid, id, &cell);
	Executor   *e;

	if (slot == NULL)
		return false;
	if (slot_cancel(slot, cell, id, kind, reason))
		return true;
	e = executor_of(slot);
	if (e->slot && e->used[cell] && slot_take_back(slot, cell))
	{
		JobRef		ref = slot->cells[cell].ref;

		type_open(executor_vacate(e, cell));
		wait_queue_open(&e->role->wait_queue);
		return_job(&ref);
		return false;
	}
	return slot_cancel(slot, cell, id, kind, reason);
}

/*
 * Cancels a running job; one that waits again is settled by an executor.
 * False: to be retried, since the queue can't be read now, or the executor's
 * report of the job has not been read yet.
 */
static bool
serve_request(QueueScan *scan, const CancelRequest *c)
{
	JobRef		ref;
	JobStatus	status;
	Known	   *k;

	if (cancel_handed_out(&c->id, CANCEL_USER, c->has_reason ? c->reason : NULL))
		return true;
	k = known_lookup(known_jobs, c->id);
	if (scan == NULL || (k != NULL && k->where == IN_FLIGHT && !lease_has(&c->id)))
		return false;
	if (!scan_find(scan, &c->id, &ref, &status) || !scan_row_is_ours(scan))
	{
		held_drop(&c->id);
		if (k != NULL && k->where == HELD)
			known_delete(known_jobs, c->id);
		return true;
	}
	if (status == JOB_RUNNING)
	{
		if (lease_callbacks.adopt(scan, &ref))
			return true;		/* its client learns of it */
		ref.charge = CHARGE_CRASHED;	/* its executor is gone */
	}
	add_pending_cancel(&ref, c);
	return true;
}

/*
 * Serves the requests.  One leaves the array when it is done, so that a
 * request under way is given back if the process ends.
 */
void
cancels_run(QueueScan *scan)
{
	int			kept = 0;
	int			n = nrequests;

	for (int i = 0; i < n; i++)
	{
		CancelRequest c = requests[i];

		if (!serve_request(scan, &c))
			requests[kept++] = c;
	}
	memmove(&requests[kept], &requests[n], sizeof(CancelRequest) * (nrequests - n));
	nrequests -= n - kept;
}

/* ---------- jobs that are only to be settled ---------- */

/*
 * Counts the pending cancel in the role that it waits for; NULL: waits no
 * longer.
 */
static void
wait_for_role(PendingCancel *p, RoleState *role)
{
	if (p->waits_for == role)
		return;
	if (p->waits_for)
		p->waits_for->cancels--;
	if (role)
		role->cancels++;
	p->waits_for = role;
}

void
cancels_hand_out(MonoTime now)
{
	for (int i = 0; i < npending;)
	{
		PendingCancel *p = &pending_cancels[i];
		TypeState  *t = type_state(p->ref.type_id);
		Known	   *k;

		if (assign_job(t, &p->ref, p->request.has_reason ? p->request.reason : NULL, now) != HANDED_OUT)
		{
			wait_for_role(p, settling_role(t, &p->ref));
			i++;
			continue;
		}
		wait_for_role(p, NULL);
		if ((k = known_lookup(known_jobs, p->ref.id)) != NULL)
			k->where = IN_FLIGHT;
		pending_cancels[i] = pending_cancels[--npending];
	}
}

void
cancels_reread(void)
{
	for (int i = 0; i < npending; i++)
	{
		PendingCancel *p = &pending_cancels[i];

		wait_for_role(p, NULL);
		add_request(&p->request);
	}
	npending = 0;
}
