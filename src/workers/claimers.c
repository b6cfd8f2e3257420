/*
 * claimers.c
 *	  Requests of jobq.claim in the dispatcher.
 *
 * A request is served in the order of arrival.  hand_out.c chooses the jobs,
 * as for executors: this file only says which request gets one.  A group of
 * lanes without a request for its type waits in TypeState.pullers, and the
 * next request opens that wait queue.  A job of a tenant that none of the
 * requests for its type may work is passed over (claim_scopes.h).  Jobs of a
 * type with options.min_batch are taken back at the end of the turn if they
 * are too few (min_batch.h).
 */
#include "jobq.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "base/grow_array.h"
#include "base/job_id.h"
#include "limits/job_bars.h"
#include "registry/job_types.h"
#include "registry/options.h"
#include "shared/claims.h"
#include "workers/claim_scopes.h"
#include "workers/claimers.h"
#include "workers/former_claims.h"
#include "workers/leases.h"

#define TAKE_AT_ONCE	64
#define READ_ENTRIES	2000	/* index entries a turn, of jobs that were passed over */

StaticAssertDecl(MIN_BATCH_MAX_JOBS <= JOBQ_CLAIM_REFS, "a batch fits into an answer");

typedef struct Claimer
{
	int			place;
	uint64		word;			/* of the place: names the request */
	uint64		types;			/* its types: most requests are passed over
								 * for a job without a look at their places */
	bool		is_new;			/* no turn has served it */
	bool		opened;			/* this turn serves it: claimers_open */
	bool		outdated;		/* a type was dropped: it waits no longer */
	int			nrefs;
	ScopeRead	passed;			/* jobs for it that were passed over */
} Claimer;

static JobqDb *db;
static MemoryContext lasting;
static Claimer *claimers = NULL;	/* the oldest first */
static int	nclaimers = 0;
static int	claimers_size = 0;
static QueueScan *reader = NULL;	/* of this turn; NULL: the queue can't be read */
static bool unread = false;		/* a tenant could not be read: types are to be opened again */
static bool types_changed = false;	/* since the last claimers_open */
static int	nreading = 0;		/* claimers that wait for jobs to be read */

void
claimers_init(MemoryContext context, JobqDb *mine)
{
	lasting = context;
	db = mine;
	nclaimers = 0;
	claim_scopes_init(context);
}

static void
take_back_refs(Claimer *c)
{
	for (int i = 0; i < c->nrefs; i++)
		lease_take_back(&claim_place(c->place)->refs[i].id);
	c->nrefs = 0;
}

/* Forgets a request that its session has withdrawn, to make this one. */
static void
drop_former(int place)
{
	for (int i = 0; i < nclaimers; i++)
	{
		if (claimers[i].place != place)
			continue;
		take_back_refs(&claimers[i]);
		nclaimers--;
		memmove(&claimers[i], &claimers[i + 1], sizeof(Claimer) * (nclaimers - i));
		return;
	}
}

static bool
has_claimer(int place, uint64 word)
{
	for (int i = 0; i < nclaimers; i++)
	{
		if (claimers[i].place == place && claimers[i].word == word)
			return true;
	}
	return false;
}

static uint64
type_bits(const ClaimPlace *place)
{
	uint64		bits = 0;

	for (int i = 0; i < Min(place->ntypes, JOBQ_CLAIM_TYPES); i++)
		bits |= CLAIM_TYPE_BIT(place->types[i]);
	return bits;
}

static void
add_claimer(int place)
{
	uint64		word = pg_atomic_read_u64(&claim_place(place)->word);

	if (CLAIM_STATE(word) != CLAIM_ASKING || has_claimer(place, word))
		return;					/* withdrawn, or found by claimers_recover */
	drop_former(place);
	pg_read_barrier();
	if (nclaimers == claimers_size)
		claimers = grow_array(lasting, claimers, &claimers_size, sizeof(Claimer));
	claimers[nclaimers++] = (Claimer) {.place = place, .word = word, .types = type_bits(claim_place(place)), .is_new = true};
}

void
claimers_recover(void)
{
	for (int i = 0; i < JobqShmem->nclaims; i++)
	{
		if (claim_place(i)->dboid == db->dboid)
			add_claimer(i);
	}
}

static bool
is_withdrawn(const Claimer *c)
{
	return pg_atomic_read_u64(&claim_place(c->place)->word) != c->word;
}

/* Forgets requests that were withdrawn. */
static void
prune(void)
{
	int			kept = 0;

	for (int i = 0; i < nclaimers; i++)
	{
		if (!is_withdrawn(&claimers[i]))
			claimers[kept++] = claimers[i];
		else
			take_back_refs(&claimers[i]);
	}
	nclaimers = kept;
}

bool
claimers_take(void)
{
	int			places[TAKE_AT_ONCE];
	int			n;

	prune();
	while ((n = claim_list_take(db, places, TAKE_AT_ONCE)) > 0)
	{
		for (int i = 0; i < n; i++)
			add_claimer(places[i]);
	}
	return claimers_pending();
}

bool
claimers_pending(void)
{
	return nreading > 0 || (nclaimers > 0 && claimers[nclaimers - 1].is_new);
}

/* ---------- hand-out ---------- */

static void
open_type(TypeState *t)
{
	wait_queue_open(&t->pullers.wait_queue);
	t->notify &= ~(NOTIFY_WAITS | NOTIFY_WAITED);	/* jobs that no claim gets set it again */
	t->unclaimed_since = 0;
	batch_gate_open(&t->batch);
}

/* Opens the wait queues of all types. */
static void
open_all_types(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		if (t->pull && !t->workflow)
			open_type(t);
	}
}

/* Opens the wait queues of the types that the request names. */
static void
open_types(const ClaimPlace *place)
{
	for (int i = 0; i < Min(place->ntypes, JOBQ_CLAIM_TYPES); i++)
	{
		TypeState  *t = type_remembered(place->types[i]);

		if (t != NULL && t->pull)
			open_type(t);
	}
}

/*
 * Reads jobs that were passed over for the requests that are new, and for
 * those whose jobs in memory have gone to limits.
 */
static void
read_passed(void)
{
	int			budget = READ_ENTRIES;

	nreading = 0;
	for (int i = 0; i < nclaimers; i++)
	{
		Claimer    *c = &claimers[i];
		bool		was_cut;

		if (!c->is_new && c->passed == SCOPE_READ)
			continue;
		was_cut = c->passed == SCOPE_CUT;
		if (reader == NULL)
			c->passed = SCOPE_CUT;
		else
			c->passed = claim_scopes_read(reader, claim_place(c->place), !c->is_new && c->passed == SCOPE_HAS_MORE, &budget);
		if (was_cut && c->passed != SCOPE_CUT)
			open_types(claim_place(c->place));	/* jobs that it did not get meanwhile */
		nreading += c->passed == SCOPE_CUT;
	}
	if (nreading > 0 && reader != NULL)
		wake_dispatcher(db);		/* the next turn goes on */
}

/* Lets the next turn read older jobs for the request, which gets none before. */
static void
read_first(Claimer *c)
{
	c->passed = SCOPE_CUT;
	nreading++;
	wake_dispatcher(db);
}

void
claimers_types_changed(void)
{
	types_changed = true;
}

/* True if a type of the request was dropped; the registry may be read. */
static bool
has_dropped_type(const ClaimPlace *place)
{
	for (int i = 0; i < Min(place->ntypes, JOBQ_CLAIM_TYPES); i++)
	{
		JobType    *type = job_type_by_id(place->types[i]);

		if (type == NULL || type->dropped)
			return true;
	}
	return false;
}

void
claimers_open(QueueScan *scan)
{
	reader = scan;
	if (former_claims_ended())
		open_all_types();
	for (int i = 0; i < nclaimers; i++)
	{
		if (claimers[i].is_new || (unread && scan != NULL))
			open_types(claim_place(claimers[i].place));
		if (claimers[i].is_new || types_changed)
			claimers[i].outdated = claim_place(claimers[i].place)->waits && has_dropped_type(claim_place(claimers[i].place));
		claimers[i].opened = true;
	}
	types_changed = false;
	if (scan != NULL)
		unread = false;
	if (claim_scopes_pending() || nreading > 0)
		read_passed();
}

/* Returns the number of the type in the request; -1: the request gets none. */
static int
wants(const Claimer *c, int32 type_id)
{
	ClaimPlace *place = claim_place(c->place);

	if ((c->types & CLAIM_TYPE_BIT(type_id)) == 0)
		return -1;
	if (c->nrefs >= Min(place->wanted, JOBQ_CLAIM_REFS) || c->passed == SCOPE_CUT)
		return -1;
	for (int i = 0; i < Min(place->ntypes, JOBQ_CLAIM_TYPES); i++)
	{
		if (place->types[i] == type_id)
			return i;
	}
	return -1;
}

/*
 * Returns the first request that gets the job; NULL: none, and *why says if
 * there are some for other tenants.  *behind, unless NULL: the first one that
 * is to get older jobs of its scope before this one.
 */
static Claimer *
first_claimer(const JobRef *ref, HandOut *why, Claimer **behind)
{
	bool		looked = false;

	*why = NO_CAPACITY;
	for (int i = 0; i < nclaimers; i++)
	{
		Claimer    *c = &claimers[i];
		int			type = wants(c, ref->type_id);

		if (type < 0 || is_withdrawn(c))
			continue;
		if (!claim_types_have(&claim_place(c->place)->scope.limited, type))
			return c;
		if (reader == NULL)
		{
			unread = true;
			continue;
		}
		*why = NO_CLAIM;
		if (!looked && !claim_scope_look(reader, ref))
			return NULL;		/* it is gone */
		looked = true;
		if (!claim_scope_admits(claim_place(c->place), type))
			continue;
		if (behind == NULL || claim_scope_is_next(claim_place(c->place), type, ref))
			return c;
		if (*behind == NULL)
			*behind = c;
	}
	return NULL;
}

/*
 * Notes that listeners may claim a job of the type.  Idle listeners know of
 * jobs that wait already, until the next claim opens the wait queue.
 */
static void
note_unclaimed(TypeState *t, HandOut why)
{
	if (why == NO_CLAIM)
		type_set_notify(t, NOTIFY_PASSED);
	else if (!t->pullers.wait_queue.shut || t->lanes.published != t->told)
		type_set_notify(t, NOTIFY_WAITS);
	t->told = t->lanes.published;
}

/* Returns the reasons that lie in the job's limits and its type's batches. */
static uint32
limit_bars(TypeState *t, const JobRef *ref)
{
	return job_bars(t, ref, -1, true, NULL) | (batch_gate_keeps(t) ? BAR_BATCH : 0);
}

uint32
claimers_bars(TypeState *t, const JobRef *ref)
{
	uint32		bars = limit_bars(t, ref);
	HandOut		why;

	if (former_claims_may_count(t, ref))
		bars |= BAR_CAPACITY;
	else if (first_claimer(ref, &why, NULL) == NULL)
		bars |= why == NO_CLAIM ? BAR_CLAIM : BAR_CAPACITY;
	return bars;
}

HandOut
claimers_assign(TypeState *t, const JobRef *ref)
{
	uint32		bars = limit_bars(t, ref);
	HandOut		why;
	Claimer    *c;
	Claimer    *behind = NULL;
	ClaimPlace *place;

	if (bars & BAR_LIMITS)
	{
		t->closed = first_full_limit(t, bars);
		return LIMIT_FULL;
	}
	if (bars & BAR_TENANT)
		return TENANT_FULL;
	if (bars & BAR_BATCH)
		return NO_BATCH;
	if (former_claims_may_count(t, ref))
		return NO_CAPACITY;
	c = first_claimer(ref, &why, &behind);
	if (c == NULL && behind != NULL)
	{
		read_first(behind);
		return NO_CAPACITY;
	}
	if (c == NULL)
	{
		note_unclaimed(t, why);
		return why;
	}
	if (bars & BAR_WEIGHT)
		return TOO_HEAVY;
	if (t->breaker.state != BREAKER_CLOSED)
		type_breaker_start(t, &ref->id);
	place = claim_place(c->place);
	place->refs[c->nrefs++] = *ref;
	lease_hand(t, ref, c->place, place->lease_us);
	pg_atomic_fetch_add_u64(&db->counters.handed_out, 1);
	return HANDED_OUT;
}

/* ---------- answers ---------- */

/* True if jobs that were passed over are to be read for it first. */
static bool
reads_on(Claimer *c, const ClaimPlace *place)
{
	if (c->passed != SCOPE_HAS_MORE || c->nrefs >= Min(place->wanted, JOBQ_CLAIM_REFS) || !claim_scopes_idle(place))
		return c->passed == SCOPE_CUT;
	nreading++;
	wake_dispatcher(db);
	return true;
}

/* Takes the jobs of the type back from the request. */
static void
take_back_type(Claimer *c, ClaimPlace *place, int32 type_id)
{
	int			kept = 0;

	for (int i = 0; i < c->nrefs; i++)
	{
		if (place->refs[i].type_id != type_id)
			place->refs[kept++] = place->refs[i];
		else
			lease_take_back(&place->refs[i].id);
	}
	pg_atomic_fetch_sub_u64(&db->counters.handed_out, c->nrefs - kept);
	c->nrefs = kept;
}

/*
 * Returns since when a job waits for its batch.  The position of a task is that
 * of its run; the time of an id is ignored after the clock was set back.
 */
static TimestampTz
waits_since(const JobRef *ref, TimestampTz now)
{
	TimestampTz made = job_id_time(&ref->id);

	return made <= now ? Max(ref->position, made) : ref->position;
}

/*
 * Takes back the jobs of the type if they are neither a batch nor old enough,
 * and shuts its gate.
 */
static void
take_back_small_batch(Claimer *c, ClaimPlace *place, TypeState *t, TimestampTz now)
{
	int			batch = Min(t->batch.jobs, Min(place->wanted, JOBQ_CLAIM_REFS));
	int			n = 0;
	TimestampTz oldest = DT_NOEND;

	for (int i = 0; i < c->nrefs; i++)
	{
		if (place->refs[i].type_id != t->id)
			continue;
		oldest = Min(oldest, waits_since(&place->refs[i], now));
		n++;
	}
	if (n == 0 || n >= batch || oldest <= now - t->batch.wait_us)
		return;
	take_back_type(c, place, t->id);
	batch_gate_shut(t, batch - n, oldest + t->batch.wait_us);
}

static void
take_back_small_batches(Claimer *c, ClaimPlace *place, TimestampTz now)
{
	for (int i = 0; c->nrefs > 0 && i < Min(place->ntypes, JOBQ_CLAIM_TYPES); i++)
	{
		TypeState  *t = type_remembered(place->types[i]);

		if (t != NULL && t->batch.jobs > 1 && !claim_types_have(&place->begun, i))
			take_back_small_batch(c, place, t, now);
	}
}

/*
 * Notes that the claim found too few jobs, so that listeners are notified of
 * the next one soon.  A claim that waits needs no notification.
 */
static void
note_emptied(const Claimer *c, const ClaimPlace *place)
{
	if (place->waits || c->nrefs >= Min(place->wanted, JOBQ_CLAIM_REFS))
		return;
	for (int i = 0; i < Min(place->ntypes, JOBQ_CLAIM_TYPES); i++)
	{
		TypeState  *t = type_remembered(place->types[i]);

		if (t != NULL && t->emptied < PG_INT32_MAX)
			t->emptied++;
	}
}

/* Answers; false: the request stays. */
static bool
answer(Claimer *c, TimestampTz now)
{
	ClaimPlace *place = claim_place(c->place);

	if (!is_withdrawn(c))
	{
		if (reads_on(c, place) || (reader != NULL && leases_are_being_read()))
			return false;
		take_back_small_batches(c, place, now);
		if (c->nrefs == 0 && place->waits && !c->outdated)
			return false;
		note_emptied(c, place);
	}
	place->nrefs = c->nrefs;
	if (!claim_answer(place, c->word))
		take_back_refs(c);
	return true;
}

void
claimers_answer(void)
{
	int			kept = 0;
	TimestampTz now = nclaimers > 0 ? GetCurrentTimestamp() : 0;

	for (int i = 0; i < nclaimers; i++)
	{
		Claimer    *c = &claimers[i];

		if (answer(c, now))
			continue;
		c->is_new &= !c->opened;	/* a turn that opens nothing, as behind a lock, serves none */
		claimers[kept++] = *c;
	}
	nclaimers = kept;
	reader = NULL;				/* the next turn may read nothing */
}
