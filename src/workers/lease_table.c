/*
 * lease_table.c
 *	  The table of the jobs that clients have, their counts in all limits, and
 *	  the heap of their timers.
 *
 * A job is counted from its hand-out to a claim on, until its attempt is
 * settled: by the client, or because its lease is over.  While the exec worker
 * settles it, the exec worker's cell is counted in its place.
 *
 * The ids of these jobs, without runs, are in shared memory, too
 * (JobqDb.claimed): jobq.stat_workers finds their rows by them.
 */
#include "jobq.h"

#include <signal.h>

#include "miscadmin.h"

#include "lanes/lane_callbacks.h"
#include "limits/concurrency_keys.h"
#include "limits/tenant_limit.h"
#include "limits/type_rates.h"
#include "limits/weight.h"
#include "shared/run_hand_outs.h"
#include "workers/former_claims.h"
#include "workers/lease_table.h"
#include "workers/leases.h"
#include "workers/returned_jobs.h"

#define KEY_LISTS	4096

static JobqDb *db;
static HTAB *leases = NULL;
static pairingheap *timers = NULL;
static dlist_head unbegun;		/* runs */
static dlist_head unlisted;		/* leases without a place in JobqDb.claimed */
static dlist_head by_key[KEY_LISTS];	/* counted leases with a concurrency key, by its hash */
static int	ncounted = 0;
static int	nruns = 0;			/* entries that are runs */
static int	nlimited = 0;		/* of them, those with a key, a tenant's limit or a breaker */
static int	nunread = 0;		/* leases in open claims, as far as known */

MonoTime
lease_due_at(const Lease *lease)
{
	return lease->settling ? DT_NOEND : Min(lease->until, lease->deadline);
}

static int
compare_due(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	MonoTime	x = lease_due_at(pairingheap_const_container(Lease, node, a));
	MonoTime	y = lease_due_at(pairingheap_const_container(Lease, node, b));

	return x < y ? 1 : x > y ? -1 : 0;
}

void
lease_table_init(MemoryContext context, JobqDb *mine)
{
	HASHCTL		ctl;
	MemoryContext old = MemoryContextSwitchTo(context);

	db = mine;
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(pg_uuid_t);
	ctl.entrysize = sizeof(Lease);
	ctl.hcxt = context;
	leases = hash_create("jobq leases", 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	timers = pairingheap_allocate(compare_due, NULL);
	dlist_init(&unbegun);
	dlist_init(&unlisted);
	for (int i = 0; i < KEY_LISTS; i++)
		dlist_init(&by_key[i]);
	MemoryContextSwitchTo(old);
	pg_atomic_write_u32(&db->health.leases, LEASES_UNKNOWN);
	SpinLockAcquire(&db->mutex);
	db->claimed.n = db->claimed.unlisted = 0;	/* a former dispatcher's */
	SpinLockRelease(&db->mutex);
}

/* ---------- counts ---------- */

static void
count_for_limits(const JobRef *ref, TypeState *t)
{
	limit_up(&t->own, PULL_EXECUTOR, true);
	for (int i = 0; i < t->nlimits; i++)
		limit_up(t->limits[i], PULL_EXECUTOR, true);
	if (weight_budget > 0)
		weight_add(t->weight);
}

static dlist_head *
key_list(uint64 key)
{
	return &by_key[key % KEY_LISTS];
}

/* Notes whether the job counts in more than limits of types. */
static void
note_limited(Lease *lease, TypeState *t)
{
	bool		limited = lease->ref.tenant_limit != 0 || lease->ref.key != 0 || t->breaker.limit > 0;

	nlimited += (int) limited - (int) lease->limited;
	lease->limited = limited;
}

static void
count_up(Lease *lease, TypeState *t)
{
	const JobRef *ref = &lease->ref;

	lease->counted = true;
	lease->run = t->workflow;
	ncounted += !lease->run;
	note_limited(lease, t);
	count_for_limits(ref, t);
	if (ref->tenant_limit != 0)
		tenant_limit_up(ref, PULL_EXECUTOR, true);
	if (ref->key != 0)
	{
		dlist_push_head(key_list(ref->key), &lease->key_node);
		key_take(ref, t);
	}
}

/* Stops counting a job; gone: no process has it, so it does not probe. */
static void
count_down(Lease *lease, TypeState *t, bool gone)
{
	const JobRef *ref = &lease->ref;

	lease->counted = false;
	ncounted -= !lease->run;
	nlimited -= lease->limited;
	lease->limited = false;
	limit_down(&t->own, PULL_EXECUTOR, true);
	for (int i = 0; i < t->nlimits; i++)
		limit_down(t->limits[i], PULL_EXECUTOR, true);
	if (weight_budget > 0)
		weight_add(-t->weight);
	if (ref->tenant_limit != 0)
		tenant_limit_down(ref, PULL_EXECUTOR, true);
	if (ref->key != 0)
	{
		dlist_delete(&lease->key_node);
		key_give_back(ref, t);
	}
	if (t->breaker.limit > 0)
		type_breaker_back(t, &ref->id, gone);
	type_open(t);
}

void
leases_recount(void)
{
	HASH_SEQ_STATUS status;
	Lease	   *lease;

	hash_seq_init(&status, leases);
	while ((lease = hash_seq_search(&status)) != NULL)
	{
		TypeState  *t = type_state(lease->ref.type_id);

		if (!lease->counted)
			continue;
		count_for_limits(&lease->ref, t);
		note_limited(lease, t);
		if (t->rated && !lease->noted)
			type_retake(t);
	}
}

void
leases_recount_tenants(QueueScan *scan)
{
	HASH_SEQ_STATUS status;
	Lease	   *lease;

	hash_seq_init(&status, leases);
	while ((lease = hash_seq_search(&status)) != NULL)
	{
		JobRef		row;
		JobStatus	now;

		lease->ref.tenant_limit = scan_find(scan, &lease->id, &row, &now) ? row.tenant_limit : 0;
		if (lease->ref.tenant_limit != 0 && lease->counted)
			tenant_limit_up(&lease->ref, PULL_EXECUTOR, true);
		if (lease->counted)
			note_limited(lease, type_state(lease->ref.type_id));
	}
}

int
leases_per_key(uint64 key)
{
	int			smallest = PG_INT32_MAX;
	dlist_iter	i;

	dlist_foreach(i, key_list(key))
	{
		Lease	   *lease = dlist_container(Lease, key_node, i.cur);

		if (lease->ref.key == key)
			smallest = Min(smallest, type_state(lease->ref.type_id)->per_key);
	}
	return smallest;
}

bool
leases_key_holder(uint64 key, pg_uuid_t *id)
{
	dlist_iter	i;

	dlist_foreach(i, key_list(key))
	{
		Lease	   *lease = dlist_container(Lease, key_node, i.cur);

		if (lease->ref.key != key)
			continue;
		*id = lease->id;
		return true;
	}
	return false;
}

void
lease_uncount(Lease *lease)
{
	count_down(lease, type_state(lease->ref.type_id), false);
}

void
lease_count(Lease *lease)
{
	count_up(lease, type_state(lease->ref.type_id));
}

/* ---------- entries ---------- */

static void
list_job(Lease *lease)
{
	ClaimedJobs *claimed = &db->claimed;

	lease->listed = -1;
	SpinLockAcquire(&db->mutex);
	if (claimed->n == JOBQ_CLAIMED)
		claimed->unlisted++;
	else
	{
		lease->listed = claimed->n++;
		claimed->ids[lease->listed] = lease->id;
	}
	SpinLockRelease(&db->mutex);
	if (lease->listed < 0)
		dlist_push_tail(&unlisted, &lease->unlisted_node);
}

/* Gives up the job's place to one that has none, or to the last one. */
static void
unlist_job(Lease *lease)
{
	ClaimedJobs *claimed = &db->claimed;
	Lease	   *next = NULL;

	if (lease->listed < 0)
		dlist_delete(&lease->unlisted_node);
	else if (!dlist_is_empty(&unlisted))
		next = dlist_container(Lease, unlisted_node, dlist_pop_head_node(&unlisted));
	else
		next = find_lease(&claimed->ids[claimed->n - 1]);
	SpinLockAcquire(&db->mutex);
	if (next == NULL || next->listed < 0)
		claimed->unlisted--;
	else
		claimed->n--;
	if (next != NULL)
		claimed->ids[lease->listed] = next->id;
	SpinLockRelease(&db->mutex);
	if (next != NULL)
		next->listed = lease->listed;
}

Lease *
find_lease(const pg_uuid_t *id)
{
	return hash_search(leases, id, HASH_FIND, NULL);
}

bool
lease_has(const pg_uuid_t *id)
{
	Lease	   *lease = find_lease(id);

	return lease != NULL && lease->counted;
}

int
leases_running(void)
{
	return ncounted + former_claims_unknown();
}

bool
leases_have_more_limits(void)
{
	return nlimited > 0 || former_claims_are_open();
}

uint32
leases_held(void)
{
	return (uint32) (hash_get_num_entries(leases) - nruns);
}

void
lease_set_timer(Lease *lease, MonoTime until, MonoTime deadline)
{
	pairingheap_remove(timers, &lease->node);
	lease->until = until;
	lease->deadline = deadline;
	pairingheap_add(timers, &lease->node);
}

Lease *
first_due(void)
{
	return pairingheap_is_empty(timers) ? NULL : pairingheap_container(Lease, node, pairingheap_first(timers));
}

Lease *
add_lease(TypeState *t, const JobRef *ref, int place)
{
	Lease	   *lease = hash_search(leases, &ref->id, HASH_ENTER, NULL);

	memset((char *) lease + sizeof(pg_uuid_t), 0, sizeof(Lease) - sizeof(pg_uuid_t));
	lease->ref = *ref;
	lease->place = place;
	lease->xact = place < 0 ? 0 : claim_place(place)->xact;
	lease->until = lease->deadline = DT_NOEND;
	nunread += place >= 0;
	nruns += t->workflow;
	pairingheap_add(timers, &lease->node);
	count_up(lease, t);
	if (!lease->run)
		list_job(lease);
	return lease;
}

void
lease_committed(Lease *lease)
{
	nunread -= lease->place >= 0;
	lease->place = -1;
	if (lease->hand_out != 0)
		dlist_delete(&lease->run_node);
	lease->hand_out = 0;
}

bool
leases_are_unread(void)
{
	return nunread > 0;
}

JobRef
drop_lease(Lease *lease)
{
	JobRef		ref = lease->ref;
	TypeState  *t = type_state(ref.type_id);

	if (t->rated && !lease->noted)
		type_refund(t);
	lease_committed(lease);
	pairingheap_remove(timers, &lease->node);
	if (!lease->run)
		unlist_job(lease);
	if (lease->counted)
		count_down(lease, t, true);
	nruns -= lease->run;
	hash_search(leases, &ref.id, HASH_REMOVE, NULL);
	return ref;
}

bool
lease_claim_is_open(const Lease *lease)
{
	ClaimPlace *place;

	if (lease->place < 0)
		return false;
	place = claim_place(lease->place);
	return place->open && place->xact == lease->xact && place->dboid == db->dboid;
}

bool
lease_claim_is_written(const Lease *lease)
{
	ClaimPlace *place = claim_place(lease->place);
	uint64		word = pg_atomic_read_u64(&place->word);

	pg_read_barrier();
	return CLAIM_NUMBER(word) != lease->request || (CLAIM_STATE(word) == CLAIM_IDLE && !place->writing);
}

TransactionId
lease_claim_xid(const Lease *lease)
{
	return claim_place(lease->place)->proc->xid;
}

pg_uuid_t *
leases_by_claim(bool open, int *n)
{
	HASH_SEQ_STATUS status;
	Lease	   *lease;
	pg_uuid_t  *ids = palloc(sizeof(pg_uuid_t) * Max(hash_get_num_entries(leases), 1));

	*n = 0;
	hash_seq_init(&status, leases);
	while ((lease = hash_seq_search(&status)) != NULL)
	{
		if (lease_claim_is_open(lease) == open)
			ids[(*n)++] = lease->id;
	}
	return ids;
}

void
leases_end_session(uint32 session)
{
	HASH_SEQ_STATUS status;
	Lease	   *lease;

	hash_seq_init(&status, leases);
	while ((lease = hash_seq_search(&status)) != NULL)
	{
		if (lease->session == session)
			lease_set_timer(lease, mono_now(), lease->deadline);
	}
}

/*
 * Terminates the session if that claim is still open: its lease is over, so it
 * can't commit any more.
 */
bool
lease_end_claim(int number, uint32 xact)
{
	ClaimPlace *place = claim_place(number);
	bool		open;

	SpinLockAcquire(&db->mutex);
	open = place->open && place->xact == xact && place->dboid == db->dboid && place->pid > 0;
	if (open && !place->commits)
		kill(place->pid, SIGTERM);
	SpinLockRelease(&db->mutex);
	return open;
}

/* ---------- hand-out ---------- */

void
lease_hand(TypeState *t, const JobRef *ref, int place, int64 lease_us)
{
	Lease	   *lease = add_lease(t, ref, place);

	lease->request = place < 0 ? 0 : CLAIM_NUMBER(pg_atomic_read_u64(&claim_place(place)->word));
	lease->lease_us = lease_us;
	if (t->unworked == ref->position)
		t->unworked = 0;		/* a claim has got it */
	lease_set_timer(lease, mono_now() + lease_us, DT_NOEND);
	if (t->rated)
		type_take(t);
}

void
lease_hand_run(TypeState *t, const JobRef *ref, uint64 number, int64 us)
{
	Lease	   *lease;

	lease_hand(t, ref, -1, us);
	lease = find_lease(&ref->id);
	lease->hand_out = number;
	dlist_push_tail(&unbegun, &lease->run_node);
}

bool
lease_run_begins(const Lease *lease)
{
	return lease->hand_out != 0 && !run_take_back(db, lease->hand_out);
}

void
leases_take_back_runs(bool all, TimestampTz now)
{
	dlist_mutable_iter i;

	dlist_foreach_modify(i, &unbegun)
	{
		Lease	   *lease = dlist_container(Lease, run_node, i.cur);
		uint32		bars = all ? TYPE_PAUSED : type_bars(type_state(lease->ref.type_id), now);
		JobRef		ref;

		if ((bars & (TYPE_PAUSED | TYPE_BLOCKED | TYPE_FILTERED)) == 0 || lease_run_begins(lease))
			continue;
		ref = drop_lease(lease);
		return_job(&ref);
	}
}

void
lease_take_back(const pg_uuid_t *id)
{
	Lease	   *lease = find_lease(id);
	JobRef		ref;

	if (lease == NULL || lease->place < 0)
		return;
	ref = drop_lease(lease);
	return_job(&ref);
}

void
lease_note_known(const JobRef *ref)
{
	bool		found;
	Known	   *k = known_insert(known_jobs, ref->id, &found);

	k->where = IN_FLIGHT;
	k->rev = ref->rev;
	if (!found)
		k->again = false;
}
