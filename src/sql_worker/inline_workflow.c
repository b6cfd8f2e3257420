/*
 * inline_workflow.c
 *	  A run of a workflow in the transaction of jobq.run_inline: see inline_workflow.h.
 *
 * This does what the conductor does for a run, by the same functions: it starts
 * the run, applies the ends of tasks to those that wait for them (edges.c), and
 * looks at runs and mapped tasks.  No other process does so meanwhile: the rows
 * of tasks are this transaction's, and that of the run is locked.
 *
 * After each task, and at the start, that is done until no row changes.  Then
 * the task that was released first is run; one that has failed is retried at
 * once.  A run among the tasks is started in the same way, and its tasks are
 * tasks of this one.
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/uuid.h"

#include "base/relations.h"
#include "sql_worker/inline_workflow.h"
#include "tables/queue_find.h"
#include "workflow/edges.h"
#include "workflow/run_begin.h"

/* What jobq_internal._inline_state() returns. */
typedef struct State
{
	pg_uuid_t  *parents;		/* that have ended, of tasks that wait */
	int			nparents;
	pg_uuid_t  *looks;			/* live runs and maps */
	int			nlooks;
	pg_uuid_t  *next;			/* the task to be run; NULL: none */
	char	   *text;			/* changes with the rows */
} State;

OwnerCall
owner_call_begin(void)
{
	OwnerCall	call;

	call.nest = NewGUCNestLevel();
	call.caller = act_as_owner();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	return call;
}

void
owner_call_end(OwnerCall call)
{
	AtEOXact_GUC(false, call.nest);
	act_as_caller(call.caller);
}

void
inline_workflow_begin(Ledger *ledger, Job *job)
{
	OwnerCall	call;

	run_write_begin(ledger, job, "inline");
	ledger_close(ledger);
	call = owner_call_begin();
	runs_begin(JOB_ID(job), 1);
	(void) run_sql_for_ids("SELECT jobq_internal._check_inline(r) FROM unnest($1) r", JOB_ID(job), 1);
	owner_call_end(call);
}

/* Returns a column of the first row: a palloc'd array of ids in that context. */
static pg_uuid_t *
ids_of_column(MemoryContext context, int column, int *n)
{
	bool		isnull;
	Datum	   *ids;
	pg_uuid_t  *result;

	deconstruct_array(DatumGetArrayTypeP(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &isnull)),
					  UUIDOID, UUID_LEN, false, TYPALIGN_CHAR, &ids, NULL, n);
	result = MemoryContextAlloc(context, sizeof(pg_uuid_t) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
		result[i] = *DatumGetUUIDP(ids[i]);
	return result;
}

static void
read_state(const pg_uuid_t *run, State *state)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			types[] = {UUIDOID};
	Datum		values[] = {UUIDPGetDatum(run)};
	bool		isnull;
	Datum		next;

	SPI_connect();
	if (SPI_execute_with_args("SELECT s.parents, s.looks, s.next, s.state FROM jobq_internal._inline_state($1) s",
							  1, types, values, NULL, false, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not read the tasks of a run");
	state->parents = ids_of_column(context, 1, &state->nparents);
	state->looks = ids_of_column(context, 2, &state->nlooks);
	state->next = NULL;
	next = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 3, &isnull);
	if (!isnull)
	{
		state->next = MemoryContextAlloc(context, sizeof(pg_uuid_t));
		*state->next = *DatumGetUUIDP(next);
	}
	state->text = MemoryContextStrdup(context, SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 4));
	SPI_finish();
}

/* Does the conductor's work for the rows of that state. */
static void
act_on(const State *state)
{
	Parent	   *parents = palloc0(sizeof(Parent) * Max(state->nparents, 1));

	for (int i = 0; i < state->nparents; i++)
		parents[i] = (Parent) {.id = state->parents[i], .status = END_LOOK};
	if (state->nparents > 0)
		(void) edges_apply(parents, state->nparents);
	CommandCounterIncrement();
	if (state->nlooks > 0)
		(void) run_sql_for_ids("SELECT jobq_internal._look($1)", state->looks, state->nlooks);
	CommandCounterIncrement();
}

/* The same until no row changes; sets the state. */
static void
settle_down(const pg_uuid_t *run, State *state)
{
	OwnerCall	call = owner_call_begin();
	char	   *before;

	read_state(run, state);
	do
	{
		CHECK_FOR_INTERRUPTS();
		before = state->text;
		act_on(state);
		read_state(run, state);
	} while (strcmp(state->text, before) != 0);
	owner_call_end(call);
}

static bool
is_live(const pg_uuid_t *id)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Table		queue;
	Job			job;
	bool		found;

	table_open_for_write(&queue, jobq_relid("queue"));
	found = queue_find_by_id(&queue, id, snapshot, &job);
	table_close_after_write(&queue);
	UnregisterSnapshot(snapshot);
	return found;
}

void
inline_workflow_run(const pg_uuid_t *run, void (*run_task) (const pg_uuid_t *id))
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "jobq inline run", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	State		state;

	for (settle_down(run, &state); state.next != NULL; settle_down(run, &state))
	{
		run_task(state.next);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	if (is_live(run))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("run %s cannot run in one transaction: its tasks wait for an event, a later time, or the end of a pause",
						DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(run))))));
}
