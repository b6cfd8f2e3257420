/*
 * conductor_sweep.c
 *	  The conductor's sweep: see conductor_sweep.h.
 *
 * Transactions of runs wait for no flush, so a crash may take back what the
 * news of a commit had said, and the list of news has an end (publish_ends.h).
 * So a sweep reads all runs, 1,000 in a transaction, in the order of their ids,
 * and takes those that a look would change (jobq_internal._sweep): at the
 * start, once in SWEEP_US while there are runs, and when news were lost.  The
 * next part is read when these have been looked at (conductor_runs.c).  A sweep
 * that is wanted while one goes on begins when that is over: each one ends.
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/concurrency_key_hash.h"
#include "schedule/conductor_runs.h"
#include "schedule/conductor_sweep.h"
#include "schedule/conductor_transaction.h"

#define SWEEP_US		USECS_PER_MINUTE

static bool have_runs = true;
static bool wanted = true;		/* when the sweep that goes on is over */
static bool wants_timers = true;	/* the clock may have been set back */
static bool sweeping = false;
static pg_uuid_t place;			/* it goes on behind this run */
static MonoTime next_sweep = 0;

typedef struct Part
{
	int			nruns;			/* out */
	pg_uuid_t	last;			/* out: of the runs */
	bool		foreign;		/* out */
} Part;

/* Takes rows that have the id and the tenant in this column and the next one. */
static void
take_rows(int column)
{
	bool		isnull;

	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		Datum		id = SPI_getbinval(row, SPI_tuptable->tupdesc, column, &isnull);
		Datum		tenant;

		if (isnull)
			continue;
		tenant = SPI_getbinval(row, SPI_tuptable->tupdesc, column + 1, &isnull);
		runs_add_swept(DatumGetUUIDP(id), isnull ? 0 : tenant_hash(DatumGetTextPP(tenant)));
	}
}

/*
 * Begins a sweep.  Tasks that wait for a time are taken if the clock may have
 * been set back: a session may have held one that was to end (_end_task).
 */
static void
do_begin(void *arg)
{
	static const char timers[] = "SELECT q.id, q.tenant FROM jobq.run_timers t JOIN jobq.queue q ON q.id = t.id"
		" WHERE q.workflow_id IS NOT NULL AND q.status <> 'blocked'";
	Part	   *part = arg;

	part->foreign = runs_are_foreign();
	if (part->foreign)
		return;
	SPI_connect();
	if (SPI_execute("SELECT jobq_internal._remove_old_runs()", false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not clean jobq.runs");
	if (wants_timers)
	{
		if (SPI_execute(timers, true, 0) != SPI_OK_SELECT)
			elog(ERROR, "could not read jobq.run_timers");
		take_rows(1);
	}
	SPI_finish();
}

static void
do_part(void *arg)
{
	Part	   *part = arg;
	Oid			types[] = {UUIDOID};
	Datum		values[] = {UUIDPGetDatum(&place)};
	bool		isnull;

	part->foreign = runs_are_foreign();
	if (part->foreign)
		return;
	SPI_connect();
	if (SPI_execute_with_args("SELECT s.run, s.live, s.id, s.tenant FROM jobq_internal._sweep($1) s",
							  1, types, values, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read jobq.runs");
	part->nruns = (int) SPI_processed;
	for (int i = 0; i < part->nruns; i++)
		have_runs |= DatumGetBool(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2, &isnull));
	if (part->nruns > 0)
		part->last = *DatumGetUUIDP(SPI_getbinval(SPI_tuptable->vals[part->nruns - 1], SPI_tuptable->tupdesc, 1, &isnull));
	take_rows(3);
	SPI_finish();
}

/* Runs a part; false: another one has to try again. */
static bool
run_part(void (*what) (void *), Part *part)
{
	ErrorData  *error = conductor_transaction(what, part);

	if (error != NULL && !conductor_error_is_transient(error))
		ReThrowError(error);
	if (error == NULL && !part->foreign)
		return true;
	have_runs = true;			/* perhaps */
	sweeping = false;
	next_sweep = mono_now() + USECS_PER_SEC;
	return false;
}

static void
begin(void)
{
	Part		part = {0};

	wanted = have_runs = false;
	sweeping = true;
	memset(&place, 0, sizeof(place));
	if (run_part(do_begin, &part))
		wants_timers = false;
}

static void
go_on(void)
{
	Part		part = {0};

	if (!run_part(do_part, &part))
		return;
	place = part.last;
	if (part.nruns > 0)
		return;
	sweeping = false;
	next_sweep = mono_now() + SWEEP_US;
}

void
sweep_has_runs(void)
{
	have_runs = true;
}

void
sweep_again(bool clock)
{
	wanted = true;
	wants_timers |= clock;
}

bool
sweep_turn(void)
{
	if (mono_now() < sweep_next())
		return false;
	if (!sweeping)
	{
		begin();
		return true;
	}
	go_on();
	return !sweeping;
}

MonoTime
sweep_next(void)
{
	if (wanted || sweeping)
		return 0;
	return have_runs ? next_sweep : DT_NOEND;
}

bool
sweep_is_idle(void)
{
	return !wanted && !sweeping && !have_runs;
}
