/*
 * leases.c
 *	  The leases of pulled jobs: reading their rows, and their timers.
 *
 * When a claim's transaction ends, its row says whether it is running; a row
 * that waits goes back to its lane.  The row has the lease, so a new
 * dispatcher finds all leases by reading the queue (lease_adopt).
 *
 * The commit of a claim wakes no dispatcher: its entry is taken in the next
 * turn, at most a second later.  A lease that has ended needs no reading.
 *
 * Heartbeats write the row and tell the dispatcher nothing.  When a timer
 * fires, the row is read: a later lease_expires_at sets the timer again.
 * Timers use the monotonic clock.  Times in rows are the wall clock's; the
 * steps of it that dispatchers have seen say what the monotonic clock showed
 * then (clock_steps.h).  So a step changes no lease, no deadline and no stall.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/grow_array.h"
#include "base/interval.h"
#include "lanes/lane_callbacks.h"
#include "limits/concurrency_keys.h"
#include "limits/type_rates.h"
#include "registry/job_types.h"
#include "shared/claim_session.h"
#include "shared/clock_steps.h"
#include "shared/publish_jobs.h"
#include "tables/queue_find.h"
#include "workers/former_claims.h"
#include "workers/lease_table.h"
#include "workers/leases.h"
#include "workers/returned_jobs.h"

static JobqDb *db;
static MemoryContext lasting;
static LaneKeys *news = NULL;	/* to be looked at */
static int	nnews = 0;
static int	news_size = 0;
static pg_uuid_t *ended = NULL; /* of these, those that have ended; sorted */
static int	nended = 0;
static int	ended_size = 0;
static bool suspect = false;
static bool suspect_open = false;	/* of leases in open claims */
static MonoTime read_by = 0;		/* unread claims are looked for then */

/* ---------- rows ---------- */

/* Columns of a row that is claimed. */
typedef struct LeaseRow
{
	TimestampTz expires_at;
	TimestampTz started_at;
	int64		lease_us;
	int64		timeout_us;
	int64		stall_us;		/* 0: none, or longer than the lease */
	bool		cancelled;
	uint32		session;
} LeaseRow;

/* Reads the row in the scan's slot; false: it has no lease. */
static bool
read_lease(QueueScan *scan, JobRef *ref, LeaseRow *row)
{
	TupleTableSlot *slot = scan->slot;
	bool		isnull;
	JobType    *type;
	Datum		value;

	value = slot_getattr(slot, Q_lease_token, &isnull);
	if (isnull)
		return false;
	row->session = token_session(DatumGetUUIDP(value));
	value = slot_getattr(slot, Q_lease_expires_at, &isnull);
	row->expires_at = isnull ? 0 : DatumGetTimestampTz(value);
	value = slot_getattr(slot, Q_started_at, &isnull);
	row->started_at = isnull ? 0 : DatumGetTimestampTz(value);
	value = slot_getattr(slot, Q_lease, &isnull);
	row->lease_us = isnull ? USECS_PER_MINUTE : interval_to_us(DatumGetIntervalP(value));
	row->cancelled = DatumGetBool(slot_getattr(slot, Q_cancel_requested, &isnull)) && !isnull;
	value = slot_getattr(slot, Q_timeout, &isnull);
	type = job_type_by_id(ref->type_id);
	row->stall_us = type && type->stall_us < row->lease_us ? type->stall_us : 0;
	row->timeout_us = type && type->workflow ? 0 :	/* the conductor's */
		!isnull ? interval_to_us(DatumGetIntervalP(value)) : type ? type->timeout_us : 0;
	return true;
}

/*
 * Returns when so much time will have passed since `since`, which the wall
 * clock showed then: now at the earliest.
 */
static MonoTime
mono_after(TimestampTz since, int64 us)
{
	return Max(clock_mono_of(db, since) + us, mono_now());
}

static bool
is_orphan(const LeaseRow *row)
{
	return row->session != 0 && !claim_session_lives(row->session);
}

/*
 * Returns when the lease is over; the session that it ends with may be gone.
 * Each heartbeat sets lease_expires_at to the time of its call and the length.
 */
static MonoTime
lease_end(const LeaseRow *row)
{
	if (is_orphan(row))
		return mono_now();
	return mono_after(row->expires_at - row->lease_us, row->stall_us > 0 ? row->stall_us : row->lease_us);
}

/* Notifies the job's type of its cancel, once: its workers send heartbeats. */
static void
note_cancel_asked(Lease *lease, const LeaseRow *row)
{
	if (row->cancelled && !lease->cancelled)
		type_set_notify(type_state(lease->ref.type_id), NOTIFY_CANCEL);
	lease->cancelled = row->cancelled;
}

/*
 * Sets the timers by the row.  The hand-out was here: a step of the clock since
 * then makes neither time shorter.
 */
static void
set_timer(Lease *lease, const LeaseRow *row)
{
	MonoTime	handed = lease->place >= 0 ? lease->until - lease->lease_us : 0;
	MonoTime	until = lease_end(row);
	MonoTime	deadline = lease->deadline;

	if (handed != 0 && !is_orphan(row))
		until = Max(until, handed + (row->stall_us > 0 ? row->stall_us : row->lease_us));
	if (deadline == DT_NOEND && row->timeout_us > 0)
		deadline = Max(mono_after(row->started_at, row->timeout_us), handed + row->timeout_us);
	lease_committed(lease);
	lease->kept = lease->reported = false;
	lease->over_since = 0;
	lease->lease_us = row->lease_us;
	lease->expires_at = row->expires_at;
	lease->session = row->session;
	note_cancel_asked(lease, row);
	lease_set_timer(lease, until, deadline);
}

/* Takes over a row that is running with a lease. */
static void
adopt(const JobRef *ref, const LeaseRow *row)
{
	TypeState  *t = type_state(ref->type_id);
	Lease	   *lease = add_lease(t, ref, -1);
	MonoTime	soon = mono_now() + OVERDUE_US;
	MonoTime	deadline = DT_NOEND;

	lease->noted = true;		/* rate windows are read from rows */
	note_cancel_asked(lease, row);	/* the former dispatcher may not have done so */
	lease_note_known(ref);
	lease->expires_at = row->expires_at;
	lease->lease_us = row->lease_us;
	if (row->timeout_us > 0)
		deadline = Max(mono_after(row->started_at, row->timeout_us), soon);
	lease->session = row->session;
	lease_set_timer(lease, is_orphan(row) ? mono_now() : Max(lease_end(row), soon), deadline);
}

/*
 * Called for a row that says running and is not known here: true if it has a
 * lease, which is counted from now on.
 */
static bool
lease_adopt(QueueScan *scan, const JobRef *ref)
{
	JobRef		copy = *ref;
	LeaseRow	row;

	copy.charge = CHARGE_NONE;
	copy.flags = 0;
	if (!read_lease(scan, &copy, &row))
		return false;
	if (find_lease(&ref->id) == NULL)
		adopt(&copy, &row);
	return true;
}

static void
start_lease(Lease *lease, const JobRef *ref, const LeaseRow *row)
{
	TypeState  *t = type_state(ref->type_id);

	if (t->rated && !lease->noted)
		type_note_start(t, row->started_at);
	lease->noted = true;
	lease->ref.tid = ref->tid;
	lease->ref.rev = ref->rev;
	lease->ref.attempts = ref->attempts;
	lease->ref.runs = ref->runs;
	set_timer(lease, row);
	scan_unmark(&ref->id);
}

/* True if a run handed to the conductor has begun and ended: its row has changed or is gone. */
static bool
run_has_begun(const Lease *lease, const JobRef *row)
{
	return lease->hand_out != 0 && (row == NULL || row->rev != lease->ref.rev);
}

/*
 * Ends a lease whose row is not running with one.  An open claim that has
 * ended and left the row as it was gives the job back.
 */
static void
end_lease(Lease *lease, const JobRef *row, TimestampTz now)
{
	TypeState  *t = type_state(lease->ref.type_id);
	JobRef		former;

	if (lease_run_begins(lease))
	{
		lease_set_timer(lease, mono_now() + USECS_PER_SEC, DT_NOEND);	/* the conductor tells its end */
		return;
	}
	if (lease->place >= 0 && row != NULL && row->rev == lease->ref.rev)
	{
		former = drop_lease(lease);
		return_job(&former);
		return;
	}
	if (t->rated && !lease->noted && (lease->place >= 0 || run_has_begun(lease, row)))
	{
		type_note_start(t, now);	/* it has begun and ended since the last look */
		lease->noted = true;
	}
	former = drop_lease(lease);
	scan_unmark(&former.id);
	if (row != NULL)
		reread_job(row);
	else
		forget_job(&former);
}

/*
 * Reads the row of a job that a client has, or had.  A job in a lane may have
 * been claimed by an answer of a former dispatcher.
 */
static void
look(QueueScan *scan, const pg_uuid_t *id)
{
	Lease	   *lease = find_lease(id);
	JobRef		ref;
	JobStatus	status;
	LeaseRow	row;
	Known	   *known = known_lookup(known_jobs, *id);
	bool		found;

	if (lease != NULL && lease->settling)
		return;					/* the exec worker reports */
	found = scan_find(scan, id, &ref, &status);
	if (found && status == JOB_RUNNING && read_lease(scan, &ref, &row))
	{
		if (lease == NULL && (known == NULL || known->where == IN_LANE))
			adopt(&ref, &row);
		else if (lease != NULL && !(lease->kept && lease->expires_at == row.expires_at))
			start_lease(lease, &ref, &row);
	}
	else if (lease != NULL)
		end_lease(lease, found ? &ref : NULL, scan->now);
}

/* Reads the rows of all leases that are committed. */
static void
look_at_all(QueueScan *scan)
{
	int			n;
	pg_uuid_t  *ids = leases_by_claim(false, &n);

	while (n > 0)
		look(scan, &ids[--n]);
	pfree(ids);
}

/*
 * True if the transaction of the open claim holds the row in the scan's slot,
 * or any transaction has changed it: the end of the first publishes the job.
 */
static bool
is_held(QueueScan *scan, const Lease *lease)
{
	TransactionId mine = lease_claim_xid(lease);
	TransactionId changer = slot_changer(scan->slot);

	return TransactionIdIsValid(changer) && (changer == mine || !TransactionIdIsInProgress(changer));
}

/*
 * Reads the rows of all leases in open claims: a row that its claim does not
 * hold was given back or refused.  True: some are still being written.
 */
static bool
look_at_open(QueueScan *scan)
{
	int			n;
	pg_uuid_t  *ids = leases_by_claim(true, &n);
	bool		again = false;

	while (n > 0)
	{
		pg_uuid_t  *id = &ids[--n];
		Lease	   *lease = find_lease(id);
		JobRef		ref;
		JobStatus	status;

		if (lease == NULL || !lease_claim_is_open(lease))
			continue;
		if (!lease_claim_is_written(lease))
			again = true;
		else if (!scan_find(scan, id, &ref, &status) || !is_held(scan, lease))
			look(scan, id);
	}
	pfree(ids);
	return again;
}

/* ---------- news ---------- */

void
lease_publication(const LaneKeys *entry)
{
	if (nnews == news_size)
		news = grow_array(lasting, news, &news_size, sizeof(LaneKeys));
	news[nnews++] = *entry;
}

void
leases_suspect(void)
{
	suspect = suspect_open = true;
}

void
lease_look_again(const pg_uuid_t *id)
{
	LaneKeys	entry = lease_entry(id, LEASE_LOOK);

	lease_publication(&entry);
}

static pg_uuid_t
id_of(const LaneKeys *entry)
{
	pg_uuid_t	id;

	memcpy(id.data, &entry->lo, sizeof(entry->lo));
	memcpy(id.data + sizeof(entry->lo), &entry->hi, sizeof(entry->hi));
	return id;
}

/*
 * Forgets a job whose row the claim found locked or changed.  Another client
 * may have it.
 */
static void
not_mine(QueueScan *scan, const pg_uuid_t *id)
{
	Lease	   *lease = find_lease(id);
	JobRef		ref;

	if (lease == NULL || lease->place < 0)
		return;
	ref = drop_lease(lease);
	if (ref.key != 0)
		key_not_had(&ref);
	forget_job(&ref);
	look(scan, id);
}

/* ---------- timers ---------- */

/* Logs once that the row is locked; pid: of the session that is terminated. */
static void
report_locked(Lease *lease, pid_t pid)
{
	char	   *id = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&lease->id)));

	if (lease->reported)
		return;
	lease->reported = true;
	if (pid != 0)
		ereport(LOG,
				(errcode(ERRCODE_WARNING),
				 errmsg("jobq: session %d is terminated: its open transaction has job %s locked beyond the lease",
						(int) pid, id)));
	else
		ereport(LOG,
				(errcode(ERRCODE_WARNING),
				 errmsg("jobq: the lease of job %s is over, but another transaction has its row locked", id),
				 errhint("The attempt ends when that transaction does.  It may be a prepared one.")));
}

/*
 * Terminates the session that has the row in the scan's slot locked by a call
 * about the job, if the lease has been over for too long.
 */
static void
end_holder(QueueScan *scan, Lease *lease, MonoTime now)
{
	TransactionId xid;
	pid_t		pid;

	if (lease->over_since == 0 || now - lease->over_since < Max(lease->lease_us, HOLDER_US))
		return;
	xid = slot_changer(scan->slot);
	pid = TransactionIdIsValid(xid) ? claim_end_holder(db, xid, &lease->id) : 0;
	if (pid != 0 || slot_is_locked(scan->slot))
		report_locked(lease, pid);
}

/* Reads the row of a lease whose timer has fired. */
static void
time_out_committed(QueueScan *scan, Lease *lease, MonoTime now)
{
	pg_uuid_t	id = lease->id;
	TimestampTz seen = lease->expires_at;
	MonoTime	deadline = lease->deadline;
	JobRef		ref;
	JobStatus	status;
	LeaseRow	row;

	if (!scan_find(scan, &id, &ref, &status) || status != JOB_RUNNING || !read_lease(scan, &ref, &row))
	{
		look(scan, &id);
		return;
	}
	lease->ref.tid = ref.tid;
	lease->ref.rev = ref.rev;
	end_holder(scan, lease, now);
	if (deadline <= now)
		settle_later(lease, CHARGE_DEADLINE);
	else if (is_orphan(&row))
		settle_later(lease, CHARGE_CONNECTION);
	else if (row.expires_at == seen)
		settle_later(lease, row.stall_us > 0 ? CHARGE_STALL : CHARGE_LEASE);
	else
		set_timer(lease, &row);
}

static void
time_out_lease(QueueScan *scan, Lease *lease, MonoTime now)
{
	if (lease->place < 0 || !lease_end_claim(lease->place, lease->xact))
		time_out_committed(scan, lease, now);
	else
		lease_set_timer(lease, now + USECS_PER_SEC, DT_NOEND);
}

bool
leases_pending(MonoTime now)
{
	return nnews > 0 || suspect || leases_settling() > 0 || leases_next_timer() <= now ||
		former_claims_are_open() || leases_are_being_read();
}

static int
compare_uuids(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(pg_uuid_t));
}

/*
 * Drops leases whose rows have gone.  Entries of their claims, in the same
 * turn, need no reading either.
 */
static void
drop_ended(TimestampTz now)
{
	nended = 0;
	for (int i = 0; i < nnews; i++)
	{
		Lease	   *lease;

		if (news[i].priority != LEASE_ENDED)
			continue;
		if (nended == ended_size)
			ended = grow_array(lasting, ended, &ended_size, sizeof(pg_uuid_t));
		ended[nended] = id_of(&news[i]);
		lease = find_lease(&ended[nended++]);
		if (lease != NULL && !lease->settling)
			end_lease(lease, NULL, now);
	}
	if (nended > 1)
		qsort(ended, nended, sizeof(pg_uuid_t), compare_uuids);
}

static bool
has_ended(const pg_uuid_t *id)
{
	return nended > 0 && bsearch(id, ended, nended, sizeof(pg_uuid_t), compare_uuids) != NULL;
}

/* Applies what a session has told about a job. */
static void
apply_news(QueueScan *scan, const LaneKeys *entry)
{
	pg_uuid_t	id = id_of(entry);
	Lease	   *lease = find_lease(&id);
	uint32		session;

	memcpy(&session, id.data, sizeof(session));
	if (entry->priority == LEASE_SESSION_GONE)
		leases_end_session(session);
	else if (entry->priority == LEASE_NOT_MINE)
		not_mine(scan, &id);
	else if (lease == NULL && has_ended(&id))
		return;
	else if (entry->priority == LEASE_BACK || lease == NULL || !lease_claim_is_open(lease))
		look(scan, &id);
}

void
leases_turn(QueueScan *scan)
{
	MonoTime	now;
	Lease	   *lease;

	former_claims_turn(mono_now());
	drop_ended(scan->now);
	for (int i = 0; i < nnews; i++)
		apply_news(scan, &news[i]);
	nnews = 0;
	if (suspect)
		look_at_all(scan);
	suspect = false;
	if (suspect_open)
		suspect_open = look_at_open(scan);
	now = mono_now();
	read_by = now + USECS_PER_SEC;
	while ((lease = first_due()) != NULL && lease_due_at(lease) <= now)
		time_out_lease(scan, lease, now);
}

MonoTime
leases_next_timer(void)
{
	Lease	   *lease = first_due();
	MonoTime	next = leases_are_unread() ? read_by : DT_NOEND;

	if (lease)
		next = Min(next, lease_due_at(lease));
	return Min(next, former_claims_next_timer());
}

void
leases_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
	lasting = context;
	lease_table_init(context, db);
	former_claims_init(context, db);
	lease_settle_init(context);
	lease_callbacks.adopt = lease_adopt;
}
