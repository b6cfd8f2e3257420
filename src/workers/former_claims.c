/*
 * former_claims.c
 *	  The claims that a former dispatcher has answered.
 *
 * A dispatcher that replaces another one finds leases in rows.  Until it has
 * read them all (lane_reader.c), nothing is handed out (hand_out_stop.c).  It
 * finds the jobs of open claims in the claims' places in shared memory.  A
 * place has the last answer only, and the number and the types of all jobs.
 * While a transaction with more claims is open, the unknown jobs count in
 * jobq.max_concurrent, and no claim gets a job with a limit in which they may
 * count: of their types, of a limit of several types or of a tenant, with a
 * concurrency key, or with jobq.max_weight.
 */
#include "jobq.h"

#include "base/grow_array.h"
#include "limits/weight.h"
#include "workers/former_claims.h"
#include "workers/lease_table.h"
#include "workers/leases.h"

/* An open transaction whose claims a former dispatcher has answered. */
typedef struct FormerClaim
{
	int			place;
	uint32		xact;
	MonoTime	until;			/* its last lease is over then */
	int			unknown;		/* jobs that are not in its place any more */
	uint64		types;			/* ClaimPlace.taken_types */
} FormerClaim;

static JobqDb *db;
static MemoryContext lasting;
static FormerClaim *former = NULL;
static int	nformer = 0;
static int	former_size = 0;
static bool former_ended = false;
static bool being_read = false;	/* rows may have leases that are not known yet */

void
former_claims_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
	lasting = context;
}

static void
recover_refs(int i, int nrefs)
{
	ClaimPlace *place = claim_place(i);

	for (int r = 0; r < Min(nrefs, JOBQ_CLAIM_REFS); r++)
	{
		JobRef		ref = place->refs[r];

		if (find_lease(&ref.id) != NULL)
			continue;
		ref.tenant_limit = 0;	/* a former dispatcher's; tenant_limits_refresh counts */
		lease_note_known(&ref);
		lease_hand(type_state(ref.type_id), &ref, i, place->lease_us);
	}
}

/*
 * Adds the jobs of claims whose transactions are open.  A session that asks
 * for more has taken all of its last answer.
 */
void
former_claims_recover(void)
{
	being_read = true;
	for (int i = 0; i < JobqShmem->nclaims; i++)
	{
		ClaimPlace *place = claim_place(i);
		int			nrefs = place->nrefs;	/* once: the session may ask again, and takes them then */
		ClaimState	state;
		int			unknown;

		pg_read_barrier();
		state = CLAIM_STATE(pg_atomic_read_u64(&place->word));
		if (!place->open || place->dboid != db->dboid)
			continue;
		unknown = place->taken - (state == CLAIM_IDLE ? nrefs : 0);
		if (unknown > 0)
		{
			if (nformer == former_size)
				former = grow_array(lasting, former, &former_size, sizeof(FormerClaim));
			former[nformer++] = (FormerClaim) {i, place->xact, mono_now() + place->lease_us, unknown, place->taken_types};
		}
		if (state != CLAIM_ASKING)
			recover_refs(i, nrefs);
	}
}

int
former_claims_unknown(void)
{
	int			n = 0;

	for (int i = 0; i < nformer; i++)
		n += former[i].unknown;
	return n;
}

bool
former_claims_are_open(void)
{
	return nformer > 0;
}

bool
leases_are_being_read(void)
{
	return being_read;
}

void
leases_were_read(void)
{
	being_read = false;
}

bool
former_claims_may_count(const TypeState *t, const JobRef *ref)
{
	if (nformer == 0)
		return false;
	if (t->nlimits > 0 || weight_budget > 0 || ref->key != 0 || ref->tenant_limit != 0)
		return true;
	for (int i = 0; i < nformer; i++)
	{
		if (former[i].types & CLAIM_TYPE_BIT(t->id))
			return true;
	}
	return false;
}

bool
former_claims_ended(void)
{
	bool		ended = former_ended;

	former_ended = false;
	return ended;
}

void
former_claims_turn(MonoTime now)
{
	int			kept = 0;

	if (nformer == 0)
		return;
	for (int i = 0; i < nformer; i++)
	{
		FormerClaim f = former[i];
		ClaimPlace *place = claim_place(f.place);

		if (!place->open || place->xact != f.xact || place->dboid != db->dboid ||
			(f.until <= now && !lease_end_claim(f.place, f.xact)))
			continue;
		if (f.until <= now)
			f.until = now + USECS_PER_SEC;
		former[kept++] = f;
	}
	former_ended |= kept < nformer;
	nformer = kept;
}

MonoTime
former_claims_next_timer(void)
{
	MonoTime	next = being_read ? mono_now() : DT_NOEND;

	for (int i = 0; i < nformer; i++)
		next = Min(next, former[i].until);
	return next;
}
