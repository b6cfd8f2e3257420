/*
 * why_requests.c
 *	  The places of jobq.why in shared memory.  why_requests.h has the design.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"

#include "shared/shmem.h"
#include "shared/wait_events.h"

#define LOOK_AGAIN_MS	10		/* while all places are taken */
#define WAIT_MS			100		/* for the answer; its latch comes sooner */

const char *const why_code_names[WHY_NCODES] = {
	[WHY_SCHEDULED] = "scheduled",
	[WHY_RETRY] = "retry",
	[WHY_WORKFLOW] = "workflow",
	[WHY_AFTER] = "after",
	[WHY_TYPE_PAUSED] = "type_paused",
	[WHY_BREAKER] = "breaker",
	[WHY_STOPPED] = "stopped",
	[WHY_DISPATCHER] = "dispatcher",
	[WHY_IDENTITY] = "identity",
	[WHY_LIMIT] = "limit",
	[WHY_SHARED_LIMIT] = "shared_limit",
	[WHY_RATE] = "rate",
	[WHY_WEIGHT] = "weight",
	[WHY_KEY] = "key",
	[WHY_TENANT_TURN] = "tenant_turn",
	[WHY_SIGNAL] = "signal",
	[WHY_FILTER] = "filter",
	[WHY_ROLE] = "role",
	[WHY_SLOTS] = "slots",
	[WHY_NO_WORKER] = "no_worker",
	[WHY_NODE] = "node",
	[WHY_HELPER] = "helper",
	[WHY_BEHIND] = "behind",
};

typedef struct Asking
{
	JobqDb	   *db;
	int			place;			/* -1: none */
} Asking;

/* ---------- the session ---------- */

static void
take_place(Asking *a, const pg_uuid_t *id)
{
	WhyRequests *whys = &a->db->whys;
	bool		first = false;

	SpinLockAcquire(&a->db->mutex);
	for (int i = 0; i < WHY_PLACES && a->place < 0; i++)
	{
		WhyPlace   *p = &whys->places[i];

		if (p->state != WHY_FREE)
			continue;
		p->state = WHY_ASKED;
		p->number++;
		p->proc = MyProc;
		p->id = *id;
		first = whys->nasked++ == 0;
		a->place = i;
	}
	SpinLockRelease(&a->db->mutex);
	if (first)
		wake_dispatcher(a->db);	/* the others find it awake, or waiting for its interval */
}

/* Also an exit callback: a place must not outlive the request. */
static void
leave_place(int code, Datum arg)
{
	Asking	   *a = (Asking *) DatumGetPointer(arg);
	WhyPlace   *p;

	if (a->place < 0)
		return;
	p = &a->db->whys.places[a->place];
	SpinLockAcquire(&a->db->mutex);
	if (p->state == WHY_ASKED)
		a->db->whys.nasked--;
	p->state = WHY_FREE;
	p->proc = NULL;
	SpinLockRelease(&a->db->mutex);
	a->place = -1;
}

static bool
copy_answer(Asking *a, WhyAnswer *answer)
{
	WhyPlace   *p = &a->db->whys.places[a->place];
	bool		answered;

	SpinLockAcquire(&a->db->mutex);
	answered = p->state == WHY_ANSWERED;
	SpinLockRelease(&a->db->mutex);
	if (answered)
		memcpy(answer, &p->answer, sizeof(WhyAnswer));	/* the session's own now */
	return answered;
}

static bool
wait_for_answer(Asking *a, const pg_uuid_t *id, MonoTime deadline, WhyAnswer *answer)
{
	for (;;)
	{
		long		left;

		if (a->place < 0)
			take_place(a, id);
		else if (copy_answer(a, answer))
			return true;
		left = mono_ms_left(mono_now(), deadline);
		if (left <= 0 || a->db->dispatcher.proc == NULL)
			return false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(left, a->place < 0 ? LOOK_AGAIN_MS : WAIT_MS), jobq_wait(WAIT_WHY));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

bool
why_ask(JobqDb *db, const pg_uuid_t *id, MonoTime deadline, WhyAnswer *answer)
{
	Asking		a = {.db = db, .place = -1};
	bool		answered;

	PG_ENSURE_ERROR_CLEANUP(leave_place, PointerGetDatum(&a));
	{
		answered = wait_for_answer(&a, id, deadline, answer);
	}
	PG_END_ENSURE_ERROR_CLEANUP(leave_place, PointerGetDatum(&a));
	leave_place(0, PointerGetDatum(&a));
	return answered;
}

/* ---------- the dispatcher ---------- */

int
why_take(JobqDb *db, uint32 *taken, pg_uuid_t *id, uint32 *number)
{
	int			found = -1;

	SpinLockAcquire(&db->mutex);
	for (int i = 0; i < WHY_PLACES && found < 0; i++)
	{
		WhyPlace   *p = &db->whys.places[i];

		if (p->state != WHY_ASKED || (*taken & ((uint32) 1 << i)) != 0)
			continue;
		*taken |= (uint32) 1 << i;
		*id = p->id;
		*number = p->number;
		found = i;
	}
	SpinLockRelease(&db->mutex);
	return found;
}

void
why_answered(JobqDb *db, int place, uint32 number, const WhyAnswer *answer)
{
	WhyPlace   *p = &db->whys.places[place];
	PGPROC	   *proc = NULL;

	SpinLockAcquire(&db->mutex);
	if (p->state == WHY_ASKED && p->number == number)
	{
		memcpy(&p->answer, answer, sizeof(WhyAnswer));
		p->state = WHY_ANSWERED;
		db->whys.nasked--;
		proc = p->proc;
	}
	SpinLockRelease(&db->mutex);
	if (proc != NULL)
		SetLatch(&proc->procLatch);
}
