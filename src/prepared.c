/*
 * prepared.c
 *	  Prepared transactions of which nothing was published.
 *
 * What COMMIT PREPARED makes visible is published by who commits it, from what PREPARE has kept in shared
 * memory (publish.c).  Of those from before our start, and of those that were too many to keep, nobody knows what they
 * touched.  The dispatcher counts them, and reads the whole queue each time that their number has fallen.
 */
#include "jobq.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/snapmgr.h"

#include "prepared.h"

static JobqDb *db;
static int	unknown_prepared = 0;	/* of them are left */
static TransactionId unknown_before;	/* they are older than that */
static uint32 prepared_ended_seen = 0;

void
prepared_init(JobqDb *mine)
{
	db = mine;
}

/* Prepared transactions of this database that began before `unknown_before`. */
static int
count_prepared(void)
{
	Oid			types[1] = {XIDOID};
	Datum		args[1] = {TransactionIdGetDatum(unknown_before)};
	int			n = 0;

	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (SPI_execute_with_args("SELECT count(*)::int4 FROM pg_catalog.pg_prepared_xacts"
							  " WHERE database = pg_catalog.current_database()"
							  " AND pg_catalog.age(transaction) > pg_catalog.age($1)",
							  1, types, args, NULL, true, 1) == SPI_OK_SELECT)
	{
		bool		isnull;

		n = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	}
	PopActiveSnapshot();
	SPI_finish();
	return n;
}

/* Nothing has told us what these touched: those from before our start, and those that were too many. */
void
expect_unknown_prepared(void)
{
	prepared_ended_seen = db->prepared_ended;
	unknown_before = ReadNextTransactionId();
	unknown_prepared = count_prepared();
}

bool
prepared_may_have_ended(void)
{
	return unknown_prepared > 0 && db->prepared_ended != prepared_ended_seen;
}

/* Their number only falls in the end; each time it does, what ended may be anywhere. */
bool
unknown_prepared_ended(void)
{
	int			before = unknown_prepared;

	if (before == 0)
		return false;
	prepared_ended_seen = db->prepared_ended;
	unknown_prepared = count_prepared();
	return unknown_prepared < before;
}
