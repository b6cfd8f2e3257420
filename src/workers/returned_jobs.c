/*
 * returned_jobs.c
 *	  Jobs that come back from an executor.
 *
 * Most go back to their lane at once.  Jobs that can't (a commit that failed
 * twice, a cancel that was not settled) are held.  A job with a row that may
 * have changed is forgotten and read again: its key is kept here until the next
 * turn reads the queue.
 */
#include "jobq.h"

#include "utils/timestamp.h"

#include "base/grow_array.h"
#include "limits/type_state.h"
#include "workers/returned_jobs.h"

typedef struct Held
{
	JobRef		ref;
	MonoTime	until;
	HoldReason	reason;
} Held;

static MemoryContext lasting;
static LaneKeys *rereads;		/* to be read again */
static int	nrereads = 0;
static int	rereads_size = 0;
static Held *held;
static int	nheld = 0;
static int	held_size = 0;

void
returned_jobs_init(MemoryContext context, JobqDb *db)
{
	lasting = context;
}

/* ---------- keys to be read again ---------- */

/*
 * Makes inbox_apply read these keys, as if a commit had published them.
 */
static void
read_again(const LaneKeys *keys)
{
	if (nrereads == rereads_size)
		rereads = grow_array(lasting, rereads, &rereads_size, sizeof(LaneKeys));
	rereads[nrereads++] = *keys;
}

bool
rereads_pending(void)
{
	return nrereads > 0;
}

const LaneKeys *
take_rereads(int *n)
{
	*n = nrereads;
	nrereads = 0;
	return rereads;
}

void
forget_job(const JobRef *ref)
{
	Known	   *k = known_lookup(known_jobs, ref->id);

	if (k == NULL)
		return;
	if (k->again)
		read_again(&k->newer);
	known_delete_item(known_jobs, k);
}

void
reread_job(const JobRef *ref)
{
	LaneKeys	keys = {ref->type_id, ref->priority, ref->sublane, ref->position, ref->position};

	forget_job(ref);
	read_again(&keys);
}

/* ---------- back to the lane ---------- */

Lane *
lane_of(const JobRef *ref)
{
	LaneId		id = {ref->type_id, ref->priority, ref->sublane};

	return type_lane(&id);
}

void
return_job(const JobRef *ref)
{
	Lane	   *lane;

	if (known_lookup(known_jobs, ref->id) == NULL)
		return;
	lane = lane_of(ref);
	lane_unplace(lane);
	lane_return(lane, ref);
	lane_place(lane, GetCurrentTimestamp());
}

/* ---------- held jobs ---------- */

void
hold_job(const JobRef *ref, MonoTime until, HoldReason reason)
{
	Known	   *k = known_lookup(known_jobs, ref->id);

	if (k == NULL)
		return;
	k->where = HELD;
	if (nheld == held_size)
		held = grow_array(lasting, held, &held_size, sizeof(Held));
	held[nheld].ref = *ref;
	held[nheld].until = until;
	held[nheld].reason = reason;
	nheld++;
}

int32
held_type(HoldReason reason)
{
	for (int i = 0; i < nheld; i++)
	{
		if (held[i].reason == reason)
			return held[i].ref.type_id;
	}
	return 0;
}

void
held_release(MonoTime now)
{
	for (int i = 0; i < nheld;)
	{
		Held		h = held[i];

		if (h.until > now)
		{
			i++;
			continue;
		}
		held[i] = held[--nheld];
		return_job(&h.ref);
	}
}

void
held_drop(const pg_uuid_t *id)
{
	for (int i = 0; i < nheld; i++)
	{
		if (memcmp(&held[i].ref.id, id, sizeof(pg_uuid_t)) == 0)
		{
			held[i] = held[--nheld];
			return;
		}
	}
}

MonoTime
returned_jobs_next_timer(MonoTime now)
{
	MonoTime	next = DT_NOEND;

	for (int i = 0; i < nheld; i++)
		next = Min(next, held[i].until);
	return next;
}

void
held_forget(void)
{
	for (int i = 0; i < nheld; i++)
	{
		Known	   *k = known_lookup(known_jobs, held[i].ref.id);

		if (k)
			known_delete_item(known_jobs, k);
	}
	nheld = 0;
}
