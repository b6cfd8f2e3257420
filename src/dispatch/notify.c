/*
 * notify.c
 *	  Notifications for listeners outside.
 *
 * NOTIFY takes a lock of the whole cluster from before the commit record until
 * after its flush, so neither enqueue nor a worker sends any.  Their commits
 * set bits (commit_notices.c).  The dispatcher sends one notification a
 * channel for all bits set within jobq.notify_interval, in a transaction that
 * waits for no flush.  It takes that lock itself, first and only when it is
 * free, since the holder may wait for a standby.  Any role may listen, so
 * payloads are empty.
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
#include "dispatch/notify.h"
#include "shared/commit_notices.h"

#define QUEUE_FULL			0.5		/* of the server's queue: a listener does not read */
#define HASH_DIGITS			16
#define TRY_AGAIN_US		USECS_PER_SEC	/* the queue is full, or its lock is held */
#define ERROR_AGAIN_US		(10 * USECS_PER_SEC)

PG_FUNCTION_INFO_V1(jobq_channel);

static JobqDb *db;
static MonoTime not_before = 0;

void
notify_init(JobqDb *mine)
{
	db = mine;
	pg_atomic_fetch_or_u32(&db->news, NEWS_ALERTS | (jobq_notify_events ? NEWS_EVENTS : 0));
}

MonoTime
notify_next_timer(void)
{
	return pg_atomic_read_u32(&db->news) == 0 ? DT_NOEND : not_before;
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
	return DatumGetFloat8(DirectFunctionCall1(pg_notification_queue_usage, (Datum) 0)) < QUEUE_FULL;
}

/* Sends in one transaction; false: the bits stay. */
static bool
send_news(uint32 bits)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool sent = false;

	StartTransactionCommand();
	PG_TRY();
	{
		if (queue_has_room() && lock_is_free())
		{
			if (bits & NEWS_EVENTS)
				Async_Notify(EVENTS_CHANNEL, "");
			if (bits & NEWS_ALERTS)
				Async_Notify(ALERTS_CHANNEL, "");
			sent = true;
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
		sent = false;
		not_before = mono_now() + ERROR_AGAIN_US;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return sent;
}

void
notify_turn(MonoTime now)
{
	uint32		bits = pg_atomic_read_u32(&db->news);

	if (bits == 0 || now < not_before)
		return;
	not_before = now + (MonoTime) jobq_notify_interval * 1000;
	/* cleared first: commits from now on set them again */
	pg_atomic_fetch_and_u32(&db->news, ~bits);
	if (!send_news(bits))
	{
		pg_atomic_fetch_or_u32(&db->news, bits);
		not_before = Max(not_before, now + TRY_AGAIN_US);
	}
}

/*
 * Implements jobq.channel(job_type): the prefix and the name; of a name that
 * is too long the beginning and a hash.
 */
Datum
jobq_channel(PG_FUNCTION_ARGS)
{
	char	   *type;
	char	   *channel;

	if (PG_ARGISNULL(0))
		argument_is_null("job_type");
	type = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (strlen(type) >= NAMEDATALEN)
		argument_too_long("job_type", strlen(type), NAMEDATALEN - 1);
	if (type[0] == '\0' || has_control(type))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"job_type\": \"%s\" is no name of a job type", argument_shown(type))));
	channel = psprintf("%s%s", jobq_notify_prefix, type);
	if (strlen(channel) >= NAMEDATALEN)
	{
		uint64		hash = hash_bytes_extended((unsigned char *) type, (int) strlen(type), 0);
		int			kept = pg_mbcliplen(channel, (int) strlen(channel), NAMEDATALEN - 2 - HASH_DIGITS);

		channel = psprintf("%.*s_%016llx", kept, channel, (unsigned long long) hash);
	}
	PG_RETURN_TEXT_P(cstring_to_text(channel));
}
