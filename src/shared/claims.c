/*
 * claims.c
 *	  Requests of sessions for jobs, and the dispatcher's answers: see claims.h.
 *
 * Locks: JobqDb.mutex for the list of requests.  No function waits, and those
 * that run at the end of a transaction cannot fail.
 */
#include "jobq.h"

#include <signal.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "shared/claims.h"
#include "shared/publish_jobs.h"

#define place_number(place)	((int) ((place) - JobqShmem->claims) + 1)

static bool asked = false;		/* in this transaction */
static bool holds = false;		/* ClaimPlace.holder is set */

ClaimPlace *
my_claim_place(void)
{
	int			number;

	if (JobqShmem == NULL || MyProc == NULL)
		return NULL;
	number = (int) (MyProc - ProcGlobal->allProcs);
	return number < JobqShmem->nclaims ? claim_place(number) : NULL;
}

static uint64
with_state(uint64 word, ClaimState state)
{
	return (word & ~UINT64CONST(3)) | state;
}

static bool
change(ClaimPlace *place, uint64 word, ClaimState state)
{
	return pg_atomic_compare_exchange_u64(&place->word, &word, with_state(word, state));
}

void
claim_ask(JobqDb *db, ClaimPlace *place)
{
	uint64		word = pg_atomic_read_u64(&place->word) + 4;

	place->nrefs = 0;
	asked = true;
	pg_write_barrier();			/* claimers_recover reads without the mutex */
	SpinLockAcquire(&db->mutex);
	pg_atomic_write_u64(&place->word, with_state(word, CLAIM_ASKING));
	place->open = true;
	place->next = 0;
	if (db->claims.last != 0)
		claim_place(db->claims.last - 1)->next = place_number(place);
	else
		db->claims.first = place_number(place);
	db->claims.last = place_number(place);
	SpinLockRelease(&db->mutex);
	wake_dispatcher(db);
}

bool
claim_is_answered(ClaimPlace *place)
{
	bool		answered = CLAIM_STATE(pg_atomic_read_u64(&place->word)) == CLAIM_ANSWERED;

	pg_read_barrier();
	return answered;
}

int
claim_take(ClaimPlace *place, JobRef *refs)
{
	int			n = place->nrefs;

	memcpy(refs, place->refs, sizeof(JobRef) * n);
	place->taken += n;
	for (int i = 0; i < n; i++)
		place->taken_types |= CLAIM_TYPE_BIT(refs[i].type_id);
	place->writing = n > 0;
	pg_write_barrier();
	(void) change(place, pg_atomic_read_u64(&place->word), CLAIM_IDLE);
	return n;
}

void
claim_written(ClaimPlace *place)
{
	pg_write_barrier();
	place->writing = false;
}

/*
 * Adds an entry about the job to the ring; a full ring makes the dispatcher
 * read the rows of all leases.
 */
static void
push_lease(JobqDb *db, const pg_uuid_t *id, LeaseNews news)
{
	LaneKeys	entry = lease_entry(id, news);

	SpinLockAcquire(&db->mutex);
	publish_entry(db, entry);
	SpinLockRelease(&db->mutex);
}

void
claim_tell(JobqDb *db, const pg_uuid_t *id, LeaseNews news)
{
	push_lease(db, id, news);
	wake_dispatcher(db);
}

/* Takes the request out of the list, if the dispatcher has not taken it. */
static void
unlist(JobqDb *db, ClaimPlace *place)
{
	int			before = 0;

	SpinLockAcquire(&db->mutex);
	for (int at = db->claims.first; at != 0; before = at, at = claim_place(at - 1)->next)
	{
		if (at != place_number(place))
			continue;
		if (before == 0)
			db->claims.first = place->next;
		else
			claim_place(before - 1)->next = place->next;
		if (db->claims.last == at)
			db->claims.last = before;
		break;
	}
	SpinLockRelease(&db->mutex);
}

void
claim_withdraw(void)
{
	ClaimPlace *place = my_claim_place();
	uint64		word;
	JobqDb	   *db;

	if (place == NULL)
		return;
	place->writing = false;		/* after an error */
	word = pg_atomic_read_u64(&place->word);
	if (CLAIM_STATE(word) == CLAIM_IDLE)
		return;
	db = my_db();
	if (CLAIM_STATE(word) == CLAIM_ASKING && change(place, word, CLAIM_IDLE))
	{
		unlist(db, place);
		wake_dispatcher(db);
		return;
	}
	pg_read_barrier();			/* answered meanwhile: refs are complete */
	for (int i = 0; i < place->nrefs; i++)
		push_lease(db, &place->refs[i].id, LEASE_BACK);
	place->nrefs = 0;
	pg_atomic_write_u64(&place->word, with_state(word, CLAIM_IDLE));
	wake_dispatcher(db);
}

void
claims_wake(Oid dboid)
{
	for (int i = 0; i < JobqShmem->nclaims; i++)
	{
		ClaimPlace *place = claim_place(i);

		if (CLAIM_STATE(pg_atomic_read_u64(&place->word)) == CLAIM_ASKING && place->dboid == dboid)
			SetLatch(&place->proc->procLatch);
	}
}

/* ---------- holders of claimed jobs ---------- */

/* Returns the number of the job's bit. */
static uint32
held_bit(const pg_uuid_t *id)
{
	return hash_bytes(id->data, UUID_LEN) % (JOBQ_HELD_WORDS * 64);
}

void
claim_hold(const pg_uuid_t *id)
{
	ClaimPlace *place = my_claim_place();
	JobqDb	   *db = place == NULL ? NULL : my_db();
	uint32		bit = held_bit(id);

	if (db == NULL)
		return;
	pg_atomic_fetch_or_u64(&place->held[bit / 64], UINT64CONST(1) << (bit % 64));
	if (holds)
		return;
	holds = true;
	place->proc = MyProc;
	SpinLockAcquire(&db->mutex);
	place->holder = MyProcPid;
	SpinLockRelease(&db->mutex);
}

/* Takes the notes of held jobs back. */
static void
take_holds_back(ClaimPlace *place, JobqDb *db)
{
	holds = false;
	SpinLockAcquire(&db->mutex);
	place->holder = 0;
	SpinLockRelease(&db->mutex);
	for (int i = 0; i < JOBQ_HELD_WORDS; i++)
		pg_atomic_write_u64(&place->held[i], 0);
}

void
claim_commits(void)
{
	if (holds)
		take_holds_back(my_claim_place(), my_db());
	if (asked)
		my_claim_place()->commits = true;
}

void
claims_end(void)
{
	ClaimPlace *place;
	JobqDb	   *db;

	if (holds)
		take_holds_back(my_claim_place(), my_db());
	if (!asked)
		return;
	asked = false;
	claim_withdraw();
	place = my_claim_place();
	db = my_db();
	SpinLockAcquire(&db->mutex);
	place->open = place->commits = false;
	place->xact++;
	place->nrefs = 0;
	place->taken = 0;
	place->taken_types = 0;
	SpinLockRelease(&db->mutex);
}

/* ---------- dispatcher's side ---------- */

pid_t
claim_end_holder(JobqDb *db, TransactionId xid, const pg_uuid_t *id)
{
	uint32		bit = held_bit(id);
	pid_t		ended = 0;

	for (int i = 0; i < JobqShmem->nclaims && ended == 0; i++)
	{
		ClaimPlace *place = claim_place(i);

		if (place->holder == 0 || place->proc->xid != xid ||
			(pg_atomic_read_u64(&place->held[bit / 64]) & (UINT64CONST(1) << (bit % 64))) == 0)
			continue;
		SpinLockAcquire(&db->mutex);
		if (place->holder != 0 && place->proc->xid == xid)
		{
			ended = place->holder;
			kill(ended, SIGTERM);
		}
		SpinLockRelease(&db->mutex);
	}
	return ended;
}

int
claim_list_take(JobqDb *db, int *places, int max)
{
	int			n = 0;

	if (db->claims.first == 0)
		return 0;
	SpinLockAcquire(&db->mutex);
	while (db->claims.first != 0 && n < max)
	{
		places[n++] = db->claims.first - 1;
		db->claims.first = claim_place(db->claims.first - 1)->next;
	}
	if (db->claims.first == 0)
		db->claims.last = 0;
	SpinLockRelease(&db->mutex);
	return n;
}

bool
claim_answer(ClaimPlace *place, uint64 word)
{
	PGPROC	   *proc = place->proc;

	pg_write_barrier();
	if (!change(place, word, CLAIM_ANSWERED))
		return false;
	SetLatch(&proc->procLatch);
	return true;
}

int
claimed_ids(JobqDb *db, pg_uuid_t *ids)
{
	int			n = -1;

	SpinLockAcquire(&db->mutex);
	if (db->dispatcher.proc != NULL && db->claimed.unlisted == 0 &&
		(pg_atomic_read_u32(&db->health.leases) & LEASES_UNKNOWN) == 0)
	{
		n = db->claimed.n;
		memcpy(ids, db->claimed.ids, sizeof(pg_uuid_t) * n);
	}
	SpinLockRelease(&db->mutex);
	return n;
}
