/*
 * lease_settle.c
 *	  Leases that are over: the exec worker ends their attempts.
 *
 * The dispatcher writes nothing, so it hands such a job to the exec worker
 * (exec_claim.c) as one that is only to be settled.  The lease stays in the
 * table until the report.  Limits count the job as the lease, then as the
 * cell of the exec worker, and as the lease again if its row was locked: a
 * heartbeat that has not committed may still renew it.
 */
#include "jobq.h"

#include "base/grow_array.h"
#include "lanes/lane_callbacks.h"
#include "workers/assign_job.h"
#include "workers/lease_table.h"
#include "workers/leases.h"
#include "workers/returned_jobs.h"

typedef struct Settling
{
	JobRef		ref;
	RoleState  *waits_for;		/* counted in its cancels; NULL: not yet */
} Settling;

static MemoryContext lasting;
static Settling *settling = NULL;	/* not yet handed to the exec worker */
static int	nsettling = 0;
static int	settling_size = 0;

void
lease_settle_init(MemoryContext context)
{
	lasting = context;
}

int
leases_settling(void)
{
	return nsettling;
}

static void
set_where(const pg_uuid_t *id, Whereabouts where)
{
	Known	   *k = known_lookup(known_jobs, *id);

	if (k != NULL)
		k->where = where;
}

void
settle_later(Lease *lease, Charge charge)
{
	if (nsettling == settling_size)
		settling = grow_array(lasting, settling, &settling_size, sizeof(Settling));
	settling[nsettling].waits_for = NULL;
	settling[nsettling].ref = lease->ref;
	settling[nsettling++].ref.charge = charge;
	lease->settling = true;
	lease_set_timer(lease, lease->until, lease->deadline);
	set_where(&lease->id, HELD);
}

static void
wait_for_role(Settling *s, RoleState *role)
{
	if (s->waits_for == role)
		return;
	if (s->waits_for)
		s->waits_for->cancels--;
	if (role)
		role->cancels++;
	s->waits_for = role;
}

/* Hands over in turn: the exec worker takes each of them or none. */
void
leases_settle(MonoTime now)
{
	int			n = 0;

	while (n < nsettling)
	{
		Settling   *s = &settling[n];
		Lease	   *lease = find_lease(&s->ref.id);

		if (assign_job(type_state(s->ref.type_id), &s->ref, NULL, now) != HANDED_OUT)
		{
			wait_for_role(s, role_state(EXEC_ROLE));
			break;
		}
		wait_for_role(s, NULL);
		set_where(&s->ref.id, IN_FLIGHT);
		if (lease != NULL)
			lease_uncount(lease);
		n++;
	}
	memmove(settling, settling + n, sizeof(Settling) * (nsettling - n));
	nsettling -= n;
}

void
lease_keep(const JobRef *ref)
{
	Lease	   *lease = find_lease(&ref->id);
	MonoTime	deadline;

	if (lease == NULL)			/* of a former dispatcher */
	{
		reread_job(ref);
		return;
	}
	deadline = lease->deadline == DT_NOEND ? DT_NOEND : Max(lease->deadline, mono_now() + OVERDUE_US);
	lease->settling = false;
	lease->kept = true;
	if (lease->over_since == 0)
		lease->over_since = mono_now();
	lease_count(lease);
	lease_set_timer(lease, mono_now() + OVERDUE_US, deadline);
	lease_look_again(&ref->id);
}

void
lease_settled(const pg_uuid_t *id)
{
	Lease	   *lease = find_lease(id);

	if (lease != NULL)
		(void) drop_lease(lease);
}
