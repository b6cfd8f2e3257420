/*
 * edges.c
 *	  Applies the ends of parents to the jobs that wait for them.
 *
 * Only the conductor calls this, so that no two transactions count the same
 * edge; release_children.c counts none.  What counts is the state of a parent
 * now: a parent that is in the queue has not ended, whatever was published.
 * after.h has the table of rules.
 *
 * A child is locked only if its lock is free; else its parents stay for the
 * next call.  An edge whose child no longer waits is deleted.  A dead letter
 * holds children of rule success: their edges stay until it is retried or
 * gone.
 *
 * A parent without a row that ended a moment ago is in recent_ends.c: it
 * kept nothing because the child's transaction began to wait after its end.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/job_status.h"
#include "base/relations.h"
#include "settle/recent_ends.h"
#include "settle/release_blocked.h"
#include "settle/settle.h"
#include "shared/publish_ends.h"
#include "tables/edge_table.h"
#include "tables/home.h"
#include "tables/queue_find.h"
#include "workflow/after_rules.h"
#include "workflow/edges.h"

#define EDGES_OF_PART	10000	/* of one transaction of a pass */

/* An edge of an ended parent. */
typedef struct Ended
{
	Edge		edge;
	int			parent;			/* its index */
	int			status;
	bool		held;			/* the edge stays */
	bool		passed;			/* a dead task after which its run goes on */
	bool		repeated;		/* another edge between the two comes first */
} Ended;

typedef struct Batch
{
	Ledger		ledger;
	Table		edges;
	int32		home;
	Parent	   *parents;
	bool	   *keep;			/* of each parent: it stays for another call */
	Edge	   *read;			/* room for EDGES_AT_ONCE */
	Ended	   *ended;
	int			nended;
	pg_uuid_t  *ready;			/* tasks of runs whose parents have ended */
	int			nready;
	MemoryContext context;		/* of the batch: what the ledger opens lives on */
} Batch;

/* ---------- parents ---------- */

/* Returns how a job without a row has ended, as far as it is known. */
static int
recall_status(const pg_uuid_t *id)
{
	RecentEnd ending;

	if (!recall_end(my_db(), id, &ending))
		return PARENT_GONE;
	return ending.status == JOB_ERROR ? PARENT_DIED : ending.status;
}

/* Returns how a job that is not in the queue has ended. */
static int
find_status(const pg_uuid_t *id)
{
	static const char sql[] = "SELECT d.status FROM jobq.dead_letters d WHERE d.id = $1"
		" UNION ALL SELECT h.status FROM jobq.history h WHERE h.id = $1 LIMIT 1";
	static SPIPlanPtr plan = NULL;	/* a pass asks for thousands */
	Oid			types[] = {UUIDOID};
	Datum		values[] = {UUIDPGetDatum(id)};
	int			status = PARENT_GONE;
	bool		isnull;

	SPI_connect();
	if (plan == NULL)
	{
		plan = SPI_prepare(sql, 1, types);
		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not prepare the search for an ended job");
	}
	if (SPI_execute_plan(plan, values, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not look for an ended job");
	if (SPI_processed > 0)
		status = status_from_oid(DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull)));
	SPI_finish();
	return status == PARENT_GONE ? recall_status(id) : status;
}

static int
status_of(Batch *batch, const Parent *parent)
{
	Job			job;

	if (queue_find_by_id(&batch->ledger.queue, &parent->id, GetActiveSnapshot(), &job))
		return PARENT_LIVES;
	return parent->status >= JOB_COMPLETED ? parent->status : find_status(&parent->id);
}

/* Reads the edges of a parent that has ended. */
static void
read_edges(Batch *batch, int i)
{
	Parent	   *parent = &batch->parents[i];
	int			room = EDGES_AT_ONCE - batch->nended;
	int			n = 0;
	int			status;

	if (room > 0)
		n = edges_of(&batch->edges, &parent->id, GetActiveSnapshot(), parent->skip, batch->read, room);
	status = n > 0 ? status_of(batch, parent) : PARENT_LIVES;
	parent->locked = false;
	batch->keep[i] = room == 0 || (n == room && status != PARENT_LIVES);
	for (int k = 0; k < n && status != PARENT_LIVES; k++)
		batch->ended[batch->nended++] = (Ended) {.edge = batch->read[k], .parent = i, .status = status};
}

/* ---------- runs ---------- */

Datum
run_sql_for_ids(const char *sql, const pg_uuid_t *ids, int n)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(n, 1));
	Oid			types[] = {UUIDARRAYOID};
	Datum		values[1];
	Datum		result = 0;
	bool		isnull;

	for (int i = 0; i < n; i++)
		elements[i] = UUIDPGetDatum(&ids[i]);
	values[0] = PointerGetDatum(construct_array(elements, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
	SPI_connect();
	if (SPI_execute_with_args(sql, 1, types, values, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", sql);
	if (SPI_processed > 0)
		result = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	SPI_finish();
	return result;
}

/* True if the run of a dead task goes on. */
static bool
task_continues(const pg_uuid_t *task)
{
	Oid			types[] = {UUIDOID};
	Datum		values[] = {UUIDPGetDatum(task)};
	bool		isnull;
	bool		result;

	SPI_connect();
	if (SPI_execute_with_args("SELECT jobq_internal._task_continues($1)", 1, types, values, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read a step");
	result = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	SPI_finish();
	return result;
}

/* ---------- children ---------- */

static void
count_end(Ends *sum, const Ended *e)
{
	if (e->repeated)
		return;
	sum->n += !e->held;
	sum->passed += e->passed;
	sum->completed += e->status == JOB_COMPLETED;
	sum->dead += (e->status == JOB_ERROR && !e->passed) || e->status == PARENT_DIED;
	sum->cancelled += e->status == JOB_CANCELLED;
	sum->gone += e->status == PARENT_GONE || e->status == PARENT_DIED;
}

/* Ends a job whose rule can't be met. */
static void
end_child(Batch *batch, Job *job, JobType *type, bool cancel)
{
	Outcome		o = {.kind = cancel ? OUTCOME_CANCELLED : OUTCOME_SKIPPED, .source = "dispatcher"};

	o.ended_at = GetCurrentTimestamp();
	o.code = "dependency";
	o.message = cancel ? "a job that it waits for was cancelled or is gone" :
		"no job that it waits for has ended as after_rule wants";
	outcome_keep_progress(job, &o);
	(void) settle(&batch->ledger, job, type, &o);
}

static void
write_wait(Batch *batch, Job *job, int left, int state)
{
	JOB_ATT(job, Q_waiting_for) = Int32GetDatum(left);
	JOB_ATT(job, Q_after_state) = Int16GetDatum((int16) state);
	job->nulls[Q_waiting_for - 1] = job->nulls[Q_after_state - 1] = false;
	JOB_ATT(job, Q_rev) = Int32GetDatum(JOB_INT(job, Q_rev) + 1);
	queue_update(&batch->ledger.queue, job);
}

/* Applies the ends to the locked child. */
static void
apply_ends(Batch *batch, Job *job, Ended *ended, int n)
{
	JobType    *type = job_type_by_id(JOB_INT(job, Q_type_id));
	Ends		sum = {0};
	int			left;
	int			state;

	MemoryContextSwitchTo(batch->context);
	for (int i = 0; i < n; i++)
		count_end(&sum, &ended[i]);
	switch (after_decide(job, &sum, &left, &state))
	{
		case WAITS:
			if (sum.n > 0)
				write_wait(batch, job, left, state);
			break;
		case RELEASED:
			if (!JOB_NULL(job, Q_workflow_id))
			{
				write_wait(batch, job, 0, state);
				batch->ready[batch->nready++] = *JOB_ID(job);
				break;
			}
			release_blocked(&batch->ledger, job, type, 0);
			break;
		case SKIPPED:
			end_child(batch, job, type, false);
			break;
		case CANCELLED:
			end_child(batch, job, type, true);
			break;
	}
}

typedef enum Child
{
	CHILD_WAITS,				/* its row is locked */
	CHILD_IS_HELD,				/* by dead letters only: nothing is to be done */
	CHILD_GONE,					/* its edges are to be deleted */
	CHILD_LOCKED,				/* they are to be looked at again */
	CHILD_FOREIGN				/* of a copy that awaits jobq.adopt() */
} Child;

/* Marks the edges that stay; true: all of them. */
static bool
mark_held(Ended *ended, int n, AfterRule rule)
{
	bool		all = true;

	for (int i = 0; i < n; i++)
	{
		ended[i].held = rule == AFTER_SUCCESS && ended[i].status == JOB_ERROR;
		all &= ended[i].held;
	}
	return all;
}

/*
 * Marks the edges that stay; true: all of them.  A dead task holds none whose
 * run goes on after it.
 */
static bool
mark_held_by(Batch *batch, Ended *ended, int n, Job *job)
{
	AfterRule	rule = after_rule_of(job);
	bool		all = mark_held(ended, n, rule);

	for (int i = 0; i < n && !JOB_NULL(job, Q_workflow_id); i++)
	{
		ended[i].passed = ended[i].held && task_continues(&batch->parents[ended[i].parent].id);
		if (ended[i].passed)
			ended[i].held = all = false;
	}
	return all;
}

/*
 * Locks a blocked child.  Its edges are those of the snapshot only while its
 * row is, too: a transaction that replaces the job changes both.
 */
static Child
lock_child(Batch *batch, Ended *ended, int n, Job *job)
{
	if (!queue_find_by_id(&batch->ledger.queue, &ended->edge.child, GetActiveSnapshot(), job) || job->status != JOB_BLOCKED)
		return CHILD_GONE;
	if (JOB_INT(job, Q_home_id) != batch->home)
		return CHILD_FOREIGN;
	if (mark_held_by(batch, ended, n, job))
		return CHILD_IS_HELD;
	return queue_lock_seen(&batch->ledger.queue, job) ? CHILD_WAITS : CHILD_LOCKED;
}

/* Keeps the parents for another call, from their first edge on. */
static void
look_again(Batch *batch, Ended *ended, int n)
{
	for (int i = 0; i < n; i++)
	{
		Parent	   *parent = &batch->parents[ended[i].parent];

		parent->locked |= !batch->keep[ended[i].parent];
		batch->keep[ended[i].parent] = true;
		parent->skip = -EDGES_AT_ONCE;
	}
}

static void
remove_edges(Batch *batch, Ended *ended, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (ended[i].held)
			batch->parents[ended[i].parent].skip++;
		else
			edge_delete(&batch->edges, &ended[i].edge);
	}
}

/* The ends of one child's parents. */
static void
do_child(Batch *batch, Ended *ended, int n)
{
	MemoryContext old = CurrentMemoryContext;
	Job			job;

	switch (lock_child(batch, ended, n, &job))
	{
		case CHILD_WAITS:
			apply_ends(batch, &job, ended, n);
			MemoryContextSwitchTo(old);
			break;
		case CHILD_IS_HELD:
			break;
		case CHILD_GONE:
			(void) mark_held(ended, n, AFTER_DONE);
			break;
		case CHILD_LOCKED:
			look_again(batch, ended, n);
			return;
		case CHILD_FOREIGN:
			(void) mark_held(ended, n, AFTER_SUCCESS);
			return;
	}
	remove_edges(batch, ended, n);
}

static int
compare_children(const void *a, const void *b)
{
	return memcmp(&((const Ended *) a)->edge.child, &((const Ended *) b)->edge.child, UUID_LEN);
}

static int
compare_edges(const void *a, const void *b)
{
	int			result = compare_children(a, b);

	return result != 0 ? result : ((const Ended *) a)->parent - ((const Ended *) b)->parent;
}

/* Sorts the edges; a second one between the same two counts no end. */
static void
sort_edges(Batch *batch)
{
	qsort(batch->ended, batch->nended, sizeof(Ended), compare_edges);
	for (int i = 1; i < batch->nended; i++)
		batch->ended[i].repeated = compare_edges(&batch->ended[i - 1], &batch->ended[i]) == 0;
}

static void
do_children(Batch *batch)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "jobq child", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	int			n;

	sort_edges(batch);
	for (int i = 0; i < batch->nended; i += n)
	{
		CHECK_FOR_INTERRUPTS();
		for (n = 1; i + n < batch->nended && compare_children(&batch->ended[i], &batch->ended[i + n]) == 0; n++)
			;
		do_child(batch, &batch->ended[i], n);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* ---------- the call ---------- */

int
edges_apply(Parent *parents, int n)
{
	Batch		batch = {.parents = parents, .context = CurrentMemoryContext};
	int			kept = 0;

	batch.keep = palloc0(sizeof(bool) * n);
	batch.ended = palloc(sizeof(Ended) * EDGES_AT_ONCE);
	batch.ready = palloc(sizeof(pg_uuid_t) * EDGES_AT_ONCE);
	batch.read = palloc(sizeof(Edge) * EDGES_AT_ONCE);
	if (!home_is_ours(&batch.home))
		return 0;
	ledger_open(&batch.ledger);
	edges_open(&batch.edges);
	PushActiveSnapshot(GetLatestSnapshot());
	for (int i = 0; i < n; i++)
		read_edges(&batch, i);
	do_children(&batch);
	PopActiveSnapshot();
	table_close_after_write(&batch.edges);
	ledger_close(&batch.ledger);
	if (batch.nready > 0)
		(void) run_sql_for_ids("SELECT jobq_internal._ready($1)", batch.ready, batch.nready);
	for (int i = 0; i < n; i++)
	{
		parents[i].skip = Max(parents[i].skip, 0);
		if (batch.keep[i])
			parents[kept++] = parents[i];
	}
	return kept;
}

/* ---------- all edges ---------- */

/* A snapshot is taken after the marks: an end that it does not see finds them. */
static int
ended_of(Table *queue, const pg_uuid_t *ids, int n, Parent *parents)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "jobq edges", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	int			ended = 0;
	Job			job;

	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!queue_find_by_id(queue, &ids[i], snapshot, &job))
			parents[ended++] = (Parent) {.id = ids[i], .status = END_LOOK};
		if (i % 64 == 63)
			MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	UnregisterSnapshot(snapshot);
	return ended;
}

bool
edges_read_part(JobqDb *db, pg_uuid_t *from, Parent **parents, int *n, bool *any)
{
	/* later than what awaited_pass_begins() has seen */
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Table		edges;
	Table		queue;
	pg_uuid_t  *ids;
	bool		more;
	int			nids;

	table_open_for_write(&queue, jobq_relid("queue"));
	edges_open(&edges);
	nids = edge_parents(&edges, from, snapshot, EDGES_OF_PART, &ids, &more);
	UnregisterSnapshot(snapshot);
	for (int i = 0; i < nids; i++)
		job_mark_awaited(db, &ids[i]);
	*parents = palloc(sizeof(Parent) * Max(nids, 1));
	*n = ended_of(&queue, ids, nids, *parents);
	*any |= nids > 0;
	if (nids > 0)
		*from = ids[nids - 1];
	table_close_after_write(&edges);
	table_close_after_write(&queue);
	return more;
}
