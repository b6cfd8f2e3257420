/*
 * unknown_prepared.c
 *	  Prepared transactions of which nothing was published.
 *
 * Rows that COMMIT PREPARED makes visible are published by the session that
 * commits, from the data that PREPARE has kept in shared memory
 * (publish_jobs.c).  The dispatcher has no data of transactions prepared
 * before its start, or of those that were too many to keep.  It lists these,
 * and reads the whole queue when one of them has ended.
 */
#include "jobq.h"

#include "access/twophase.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "dispatch/unknown_prepared.h"

static JobqDb *db;
static TransactionId *unknown = NULL;	/* those that have not ended, */
static int	nunknown = 0;		/* of max_prepared_transactions */
static uint32 prepared_ended_seen = 0;

void
prepared_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
}

/*
 * Fills `unknown` with the prepared transactions of this database.  Reads the
 * function, not the view pg_prepared_xacts: the view joins pg_authid and
 * pg_database, so it would wait for their locks and those of their indexes.
 */
static void
list_prepared(void)
{
	nunknown = 0;
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (SPI_execute(psprintf("SELECT transaction FROM pg_catalog.pg_prepared_xact() WHERE dbid = %u", MyDatabaseId),
					true, 0) == SPI_OK_SELECT)
	{
		for (uint64 i = 0; i < SPI_processed && nunknown < max_prepared_xacts; i++)
		{
			bool		isnull;

			unknown[nunknown++] = DatumGetTransactionId(SPI_getbinval(SPI_tuptable->vals[i],
																	  SPI_tuptable->tupdesc, 1, &isnull));
		}
	}
	PopActiveSnapshot();
	SPI_finish();
}

/*
 * Lists the transactions without data: those from before this start, and those
 * that were too many.
 */
void
expect_unknown_prepared(void)
{
	if (unknown == NULL)
		unknown = MemoryContextAlloc(TopMemoryContext, Max(max_prepared_xacts, 1) * sizeof(TransactionId));
	prepared_ended_seen = db->prepared.ended;
	list_prepared();
}

bool
prepared_may_have_ended(void)
{
	return nunknown > 0 && db->prepared.ended != prepared_ended_seen;
}

/* True if one of them has ended; its rows may be anywhere. */
bool
unknown_prepared_ended(void)
{
	int			kept = 0;
	int			before = nunknown;

	if (before == 0)
		return false;
	prepared_ended_seen = db->prepared.ended;
	for (int i = 0; i < nunknown; i++)
	{
		if (TransactionIdIsInProgress(unknown[i]))
			unknown[kept++] = unknown[i];
	}
	nunknown = kept;
	return kept < before;
}
