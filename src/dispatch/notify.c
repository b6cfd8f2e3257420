/*
 * notify.c
 *	  Notifications for listeners outside.
 *
 * NOTIFY takes a lock of the whole cluster from before the commit record until
 * after its flush, so neither enqueue nor a worker sends any.  Their commits
 * set bits (commit_news.c).  The dispatcher sends one notification a
 * channel for all bits set within jobq.notify_interval, in a transaction that
 * waits for no flush.  It takes that lock itself, first and only when it is
 * free, since the holder may wait for a standby.  Any role may listen, so
 * payloads are empty.
 *
 * The channel of a pull type is notified when one of its jobs could start and
 * no claim waits for it (claimers.c), and when a claimed job is to be
 * cancelled (leases.c): at once, then at most once in jobq.notify_interval.
 * Hand-out decides that a job could start.  A notification that has to wait,
 * for the interval or for jobq.max_weight, is decided again when it is due.
 * A listener whose claim has found too few jobs sleeps.  So the first such
 * claim since the last notification shortens the wait for the next one to an
 * eighth.  Each further one adds an eighth: a notification wakes all listeners.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/async.h"
#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/errors.h"
#include "dispatch/hand_out.h"
#include "dispatch/hand_out_stop.h"
#include "dispatch/notify.h"
#include "limits/type_rates.h"
#include "limits/type_state.h"
#include "limits/weight.h"
#include "registry/job_types.h"
#include "shared/commit_news.h"

#define HASH_DIGITS			16
#define CROWD				8		/* so many empty claims: the whole interval */
#define TRY_AGAIN_US		USECS_PER_SEC	/* the queue is full, or its lock is held for long */
#define LOCK_AGAIN_US		(4 * 1000)	/* at first, while its lock is held */
#define ERROR_AGAIN_US		(10 * USECS_PER_SEC)

PG_FUNCTION_INFO_V1(jobq_channel);

static JobqDb *db;
static MonoTime not_before = 0;
static MonoTime types_suspended = 0;	/* no channel of a type is notified before then */
static int64 lock_again_us = LOCK_AGAIN_US;

void
notify_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
	pg_atomic_fetch_or_u32(&db->news, NEWS_ALERTS | (jobq_notify_events ? NEWS_EVENTS : 0));
}

/* Returns when the type's channel may be notified again. */
static MonoTime
type_not_before(const TypeState *t)
{
	int64		interval = (int64) jobq_notify_interval * 1000;

	if (t->notified == 0)
		return 0;
	if (t->emptied > 0)
		interval = interval * Min(t->emptied, CROWD) / CROWD;
	return t->notified + interval;
}

/* True if the server has room for one more job of the type. */
static bool
has_room(const TypeState *t)
{
	return may_hand_out() && hand_out_has_room() && (weight_budget == 0 || weight_fits(NULL, t->weight));
}

/*
 * True if a job that claims have passed may start, so far as its type decides.
 * It has left memory, so it is not tried again.
 */
static bool
passed_may_start(TypeState *t)
{
	TimestampTz now = GetCurrentTimestamp();

	return type_may_start(t, now) && type_full_limits(t, -1, true) == 0 && (!t->rated || type_closed_rates(t, now) == 0);
}

/* Returns when the type's channel is to be notified, or its jobs tried again. */
static MonoTime
type_due(TypeState *t)
{
	if (t->notify == 0)
		return DT_NOEND;
	if ((t->notify & NOTIFY_CANCEL) != 0 ||
		(has_room(t) && ((t->notify & (NOTIFY_WAITS | NOTIFY_WAITED)) != 0 || passed_may_start(t))))
		return type_not_before(t);
	return DT_NOEND;
}

/* Returns when the first channel of a type is to be notified. */
static MonoTime
types_next_timer(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	MonoTime	next = DT_NOEND;
	bool		any = false;

	if (!types_notify)
		return DT_NOEND;
	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		any |= t->notify != 0;
		next = Min(next, type_due(t));
	}
	types_notify = any;
	return next == DT_NOEND ? next : Max(next, types_suspended);
}

MonoTime
notify_next_timer(MonoTime now)
{
	return Min(pg_atomic_read_u32(&db->news) == 0 ? DT_NOEND : not_before, types_next_timer());
}

/* True if the lock that PreCommit_Notify takes is free. */
static bool
lock_is_free(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, InvalidOid, 0);
	return LockAcquire(&tag, AccessExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

static bool
queue_has_room(void)
{
	return DatumGetFloat8(DirectFunctionCall1(pg_notification_queue_usage, (Datum) 0)) < NOTIFY_QUEUE_LIMIT;
}

/* Returns the channel of a job type: see jobq_channel. */
static char *
channel_of(const char *type)
{
	char	   *channel = psprintf("%s%s", jobq_notify_prefix, type);
	uint64		hash;
	int			kept;

	if (strlen(channel) < NAMEDATALEN)
		return channel;
	hash = hash_bytes_extended((const unsigned char *) type, (int) strlen(type), 0);
	kept = pg_mbcliplen(channel, (int) strlen(channel), NAMEDATALEN - 2 - HASH_DIGITS);
	return psprintf("%.*s_%016llx", kept, channel, (unsigned long long) hash);
}

/*
 * Withdraws the notifications of former turns that are due: the limits of
 * their jobs may have filled up.  The next turn tries those jobs again, and
 * sets NOTIFY_WAITS if a claim would get one.
 */
static void
try_again(MonoTime now)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	if (!types_notify || now < types_suspended)
		return;
	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		if (t->notify != NOTIFY_WAITED || type_due(t) > now)
			continue;
		t->notify = 0;
		wait_queue_open(&t->pullers.wait_queue);
	}
}

/* Notes that the bits of this turn are of a former one. */
static void
turn_has_ended(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	if (!types_notify)
		return;
	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		if (t->notify & NOTIFY_WAITS)
			t->notify = (t->notify & ~NOTIFY_WAITS) | NOTIFY_WAITED;
	}
}

/* Notifies the channels of types with jobs for their listeners. */
static void
notify_types(MonoTime now)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		JobType    *type = type_due(t) <= now ? job_type_by_id(t->id) : NULL;

		if (type != NULL)
			Async_Notify(channel_of(type->name), "");
	}
}

/* Notes that notify_types has sent. */
static void
note_types_sent(MonoTime now)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		if (type_due(t) > now)
			continue;
		t->notify = 0;
		t->notified = now;
		t->emptied = 0;
	}
}

/* Returns the time until the next try, longer each time. */
static int64
lock_again(void)
{
	int64		us = lock_again_us;

	lock_again_us = Min(lock_again_us * 2, TRY_AGAIN_US);
	return us;
}

/*
 * Sends in one transaction.  Returns 0, or the time until the next try: the
 * bits and those of types stay.
 */
static int64
send_news(uint32 bits, MonoTime now)
{
	MemoryContext context = CurrentMemoryContext;
	volatile int64 again_us = 0;

	StartTransactionCommand();
	PG_TRY();
	{
		if (!queue_has_room())
			again_us = TRY_AGAIN_US;
		else if (!lock_is_free())
			again_us = lock_again();
		else
		{
			if (bits & NEWS_EVENTS)
				Async_Notify(EVENTS_CHANNEL, "");
			if (bits & NEWS_ALERTS)
				Async_Notify(ALERTS_CHANNEL, "");
			notify_types(now);
		}
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		AbortOutOfAnyTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
		again_us = ERROR_AGAIN_US;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return again_us;
}

/* Sends what is due. */
static void
send_due(MonoTime now)
{
	uint32		bits = now < not_before ? 0 : pg_atomic_read_u32(&db->news);
	int64		again_us;

	if (bits == 0 && types_next_timer() > now)
		return;
	/* cleared first: commits from now on set them again */
	pg_atomic_fetch_and_u32(&db->news, ~bits);
	again_us = send_news(bits, now);
	if (bits != 0)
		not_before = now + Max(again_us, (int64) jobq_notify_interval * 1000);
	if (again_us == 0)
	{
		note_types_sent(now);
		lock_again_us = LOCK_AGAIN_US;
		return;
	}
	pg_atomic_fetch_or_u32(&db->news, bits);
	types_suspended = now + again_us;
}

void
notify_turn(MonoTime now)
{
	try_again(now);
	send_due(now);
	turn_has_ended();
}

/*
 * Implements jobq.channel(job_type): the prefix and the name; of a name that
 * is too long the beginning and a hash.
 */
Datum
jobq_channel(PG_FUNCTION_ARGS)
{
	char	   *type;

	if (PG_ARGISNULL(0))
		argument_is_null("job_type");
	type = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (strlen(type) >= NAMEDATALEN)
		argument_too_long("job_type", strlen(type), NAMEDATALEN - 1);
	if (type[0] == '\0' || has_control(type))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"job_type\": \"%s\" is no name of a job type", argument_shown(type))));
	PG_RETURN_TEXT_P(cstring_to_text(channel_of(type)));
}
