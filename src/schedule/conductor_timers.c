/*
 * conductor_timers.c
 *	  Timers that are acted on one by one: see conductor_timers.h.
 *
 * The time of a timer that fails is put off in its row, so that the others go
 * on, and the conductor sleeps until then.
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "schedule/conductor_timers.h"
#include "schedule/conductor_transaction.h"

#define TIMERS_AT_ONCE	50

typedef struct Timers
{
	ItemPointerData *places;
	pg_uuid_t  *ids;
	int			n;
	int			i;				/* the one to act on */
	bool		transient;		/* its error */
} Timers;

static void
read_due(void *arg)
{
	Timers	   *timers = arg;
	bool		isnull;

	SPI_connect();
	if (SPI_execute("SELECT t.ctid, t.id FROM jobq.run_timers t WHERE t.due <= (SELECT pg_catalog.clock_timestamp()) ORDER BY t.due",
					true, TIMERS_AT_ONCE) != SPI_OK_SELECT)
		elog(ERROR, "could not read jobq.run_timers");
	for (; (uint64) timers->n < SPI_processed; timers->n++)
	{
		HeapTuple	row = SPI_tuptable->vals[timers->n];

		timers->places[timers->n] = *(ItemPointer) DatumGetPointer(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull));
		timers->ids[timers->n] = *DatumGetUUIDP(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull));
	}
	SPI_finish();
}

/* Runs a command with the place ($1) and the id ($2) of a timer. */
static void
run(Timers *timers, const char *sql)
{
	Oid			types[] = {TIDOID, UUIDOID};
	Datum		values[] = {PointerGetDatum(&timers->places[timers->i]), UUIDPGetDatum(&timers->ids[timers->i])};

	if (SPI_execute_with_args(sql, 2, types, values, NULL, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", sql);
}

static void
act(void *arg)
{
	SPI_connect();
	run(arg, "DELETE FROM jobq.run_timers t WHERE t.ctid = $1 AND t.id = $2");
	run(arg, "SELECT jobq_internal._act_on_timers(ARRAY[$2]) WHERE $1 IS NOT NULL");
	SPI_finish();
}

static void
put_off(void *arg)
{
	Timers	   *timers = arg;

	SPI_connect();
	run(timers, timers->transient ?
		"UPDATE jobq.run_timers t SET due = pg_catalog.clock_timestamp() + interval '2 s' WHERE t.ctid = $1 AND t.id = $2" :
		"UPDATE jobq.run_timers t SET due = pg_catalog.clock_timestamp() + interval '10 s' WHERE t.ctid = $1 AND t.id = $2");
	SPI_finish();
}

ErrorData *
timers_one_by_one(void)
{
	Timers		timers = {0};
	ErrorData  *error;

	timers.places = palloc(sizeof(ItemPointerData) * TIMERS_AT_ONCE);
	timers.ids = palloc(sizeof(pg_uuid_t) * TIMERS_AT_ONCE);
	error = conductor_transaction(read_due, &timers);
	for (; error == NULL && timers.i < timers.n; timers.i++)
	{
		ErrorData  *failed = conductor_transaction(act, &timers);

		if (failed == NULL)
			continue;
		timers.transient = conductor_error_is_transient(failed);
		if (!timers.transient)
			ereport(WARNING,
					(errcode(failed->sqlerrcode),
					 errmsg("jobq: a timer of a run: %s", failed->message)));
		error = conductor_transaction(put_off, &timers);
	}
	return error;
}
