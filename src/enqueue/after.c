/*
 * after.c
 *	  Reads and stores what a job waits for.
 *
 * A parent's bit is set (publish_ends.h) before its row is read: if the row is
 * still in the queue then, its end will be published.  A parent of another
 * transaction may end before this one commits; so the conductor looks at it
 * after the commit.  The parent is neither locked nor written.
 *
 * If the parents have ended already and the rule is met, the job is not
 * blocked, and no edge is stored.  Every other end is left to the conductor.
 *
 * Only a replace gives parents to a job that others may wait for, so only a
 * replace can close a cycle: it takes a lock of its own, and looks for one.
 */
#include "jobq.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/snapmgr.h"
#include "utils/uuid.h"

#include "base/act_as.h"
#include "base/errors.h"
#include "base/job_status.h"
#include "base/relations.h"
#include "enqueue/after.h"
#include "registry/job_types.h"
#include "security/access.h"
#include "shared/publish_ends.h"
#include "tables/edge_table.h"
#include "tables/queue_find.h"

#define MAX_LOOKS	512			/* of a transaction; beyond: all edges are read */
#define CYCLE_LOCK	9			/* keeps our lock apart from advisory ones, which have 1 and 2 */

const char *const after_rule_names[] = {"success", "done", "any", "failed"};

/* ---------- arguments ---------- */

static AfterRule
read_rule(const NullableDatum *arg)
{
	char	   *word;

	if (arg->isnull)
		argument_is_null("after_rule");
	word = TextDatumGetCString(arg->value);
	for (int i = 0; i < (int) lengthof(after_rule_names); i++)
	{
		if (strcmp(word, after_rule_names[i]) == 0)
			return (AfterRule) i;
	}
	argument_no_choice("after_rule", word, "\"success\", \"done\", \"any\", \"failed\"");
}

static int
compare_ids(const void *a, const void *b)
{
	return memcmp(DatumGetUUIDP(*(const Datum *) a), DatumGetUUIDP(*(const Datum *) b), UUID_LEN);
}

/* Returns the array in the order of ids, each once. */
static ArrayType *
distinct_ids(Datum *ids, int n)
{
	int			kept = 0;

	qsort(ids, n, sizeof(Datum), compare_ids);
	for (int i = 0; i < n; i++)
	{
		if (kept == 0 || compare_ids(&ids[kept - 1], &ids[i]) != 0)
			ids[kept++] = ids[i];
	}
	return construct_array(ids, kept, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR);
}

void
after_read(Request *request, const NullableDatum *after, const NullableDatum *rule)
{
	Datum	   *ids;
	bool	   *nulls;
	int			n;

	request->after_rule = read_rule(rule);
	if (after->isnull)
		return;
	deconstruct_array(DatumGetArrayTypeP(after->value), UUIDOID, UUID_LEN, false, TYPALIGN_CHAR, &ids, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"after\": an element must not be NULL")));
	}
	if (n > JOBQ_MAX_AFTER)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("argument \"after\": %d ids are more than %d", n, JOBQ_MAX_AFTER)));
	request->after = distinct_ids(ids, n);
}

static pg_uuid_t *
parents_of(ArrayType *after, int *n)
{
	*n = ArrayGetNItems(ARR_NDIM(after), ARR_DIMS(after));
	return (pg_uuid_t *) ARR_DATA_PTR(after);
}

int
after_count(const Request *request)
{
	int			n;

	(void) parents_of(request->after, &n);
	return n;
}

/* ---------- parents ---------- */

static void
no_parent(const pg_uuid_t *id)
{
	ereport(ERROR,
			(errcode(ERRCODE_NO_DATA_FOUND),
			 errmsg("argument \"after\": job %s does not exist",
					DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id)))),
			 errhint("A job of a type that keeps nothing can be named in the transaction that enqueues it.")));
}

/* Raises P0002 unless the caller may read a job of those columns. */
static void
check_sees(Oid caller, const pg_uuid_t *id, int32 type_id, text *tenant, text *enqueued_by)
{
	JobType    *type = job_type_by_id(type_id);

	if (access_is_free(caller))
		return;
	if (type == NULL || !access_sees(caller, tenant, type->name, enqueued_by))
		no_parent(id);
}

static text *
text_of(Job *job, int att)
{
	return JOB_NULL(job, att) ? NULL : DatumGetTextPP(JOB_ATT(job, att));
}

static Datum
result_column(int att, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, att, isnull);
}

static text *
result_text(int att)
{
	bool		isnull;
	Datum		value = result_column(att, &isnull);

	return isnull ? NULL : DatumGetTextPP(value);
}

/* Returns the status of a parent that the snapshot has not in the queue; P0002: none. */
static JobStatus
ended_status(Oid caller, const pg_uuid_t *id, Snapshot snapshot)
{
	static const char sql[] =
		"SELECT d.status, d.type_id, d.tenant, d.enqueued_by FROM jobq.dead_letters d WHERE d.id OPERATOR(pg_catalog.=) $1"
		" UNION ALL SELECT h.status, h.type_id, h.tenant, h.enqueued_by FROM jobq.history h"
		" WHERE h.id OPERATOR(pg_catalog.=) $1 LIMIT 1";
	Oid			types[] = {UUIDOID};
	Datum		values[] = {UUIDPGetDatum(id)};
	Caller		before = act_as_owner();
	JobStatus	status;
	bool		isnull;

	SPI_connect();
	PushActiveSnapshot(snapshot);	/* which SPI uses when it only reads */
	if (SPI_execute_with_args(sql, 1, types, values, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not look for an ended job");
	if (SPI_processed == 0)
		no_parent(id);
	status = status_from_oid(DatumGetObjectId(result_column(1, &isnull)));
	check_sees(caller, id, DatumGetInt32(result_column(2, &isnull)), result_text(3), result_text(4));
	PopActiveSnapshot();
	SPI_finish();
	act_as_caller(before);
	return status;
}

/* What the parents' states amount to. */
typedef struct Resolution
{
	int			waits;			/* parents that have not ended, or whose end is the conductor's */
	int			completed;
	int			failed;			/* dead or cancelled */
} Resolution;

static void
count_parent(Resolution *sum, JobStatus status, AfterRule rule)
{
	bool		failed = status == JOB_ERROR || status == JOB_CANCELLED;

	if (status < JOB_COMPLETED || (rule == AFTER_SUCCESS && failed))
		sum->waits++;
	sum->completed += status == JOB_COMPLETED;
	sum->failed += failed;
}

static bool
is_met(const Resolution *sum, AfterRule rule)
{
	switch (rule)
	{
		case AFTER_SUCCESS:
			return sum->waits == 0 && sum->completed > 0;
		case AFTER_DONE:
			return sum->waits == 0;
		case AFTER_ANY:
			return sum->completed > 0;
		case AFTER_FAILED:
			return sum->failed > 0;
	}
	return false;
}

/*
 * Reads the state of a parent.  *ours: it can't end before this transaction
 * does.
 */
static JobStatus
parent_status(Enqueuer *e, const pg_uuid_t *id, bool *ours)
{
	Oid			caller = GetUserId();
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Job			job;
	JobStatus	status = JOB_COMPLETED;
	bool		lives = queue_find_by_id(&e->queue, id, snapshot, &job);

	*ours = lives && TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(job.tuple->t_data));
	if (!lives)
		status = ended_status(caller, id, snapshot);
	UnregisterSnapshot(snapshot);
	if (!lives)
		return status;
	check_sees(caller, id, JOB_INT(&job, Q_type_id), text_of(&job, Q_tenant), text_of(&job, Q_enqueued_by));
	return job.status;
}

void
after_resolve(Enqueuer *e, Request *request)
{
	JobqDb	   *db = my_db();
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "jobq after", ALLOCSET_SMALL_SIZES);
	MemoryContext old = CurrentMemoryContext;
	Resolution	sum = {0};
	pg_uuid_t  *parents;
	int			n;

	parents = parents_of(request->after, &n);
	request->blocked = request->completed = false;
	request->counted = NULL;
	if (n == 0)
		return;
	request->nlooks = 0;
	request->looks = palloc(sizeof(pg_uuid_t) * Min(n, MAX_LOOKS));
	CommandCounterIncrement();	/* parents of the same call */
	for (int i = 0; i < n; i++)
	{
		bool		ours;
		JobStatus	status;

		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(context);
		if (db != NULL)
			job_await(db, &parents[i]);
		status = parent_status(e, &parents[i], &ours);
		count_parent(&sum, status, request->after_rule);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
		if (status == JOB_COMPLETED || status == JOB_SKIPPED)
			request->counted = bms_add_member(request->counted, i);
		if (!ours && request->nlooks++ < MAX_LOOKS)
			request->looks[request->nlooks - 1] = parents[i];
	}
	MemoryContextDelete(context);
	request->blocked = !is_met(&sum, request->after_rule);
	if (bms_num_members(request->counted) == n)
		request->counted = NULL;	/* if it is blocked, the conductor skips it: by its edges */
	request->completed = request->counted != NULL && sum.completed > 0;
}

/* ---------- edges ---------- */

static Table *
edges_table(Enqueuer *e)
{
	if (e->edges == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(e->context);

		e->edges = palloc0(sizeof(Table));
		edges_open(e->edges);
		MemoryContextSwitchTo(old);
	}
	return e->edges;
}

void
after_store(Enqueuer *e, Request *request, const pg_uuid_t *id)
{
	Table	   *edges = edges_table(e);
	pg_uuid_t  *parents;
	int			n;

	parents = parents_of(request->after, &n);
	for (int i = 0; i < n; i++)
	{
		if (!bms_is_member(i, request->counted))
			edge_insert(edges, &parents[i], id);
	}
	if (request->nlooks > MAX_LOOKS)
		note_look_at_all();
	for (int i = 0; i < request->nlooks && request->nlooks <= MAX_LOOKS; i++)
		note_look(&request->looks[i], 0, END_LOOK);
}

void
after_forget(Enqueuer *e, Job *job)
{
	pg_uuid_t  *parents;
	int			n;

	if (JOB_NULL(job, Q_after))
		return;
	parents = parents_of(DatumGetArrayTypeP(JOB_ATT(job, Q_after)), &n);
	for (int i = 0; i < n; i++)
		edges_delete(edges_table(e), &parents[i], JOB_ID(job));
}

/* ---------- cycles ---------- */

/*
 * Waits for other transactions that give parents to a stored job, and keeps them
 * out until this one ends: none of two that close a cycle sees the other's edges
 * before its commit.  A new job has no children yet, so enqueue needs no lock.
 */
static void
lock_cycles(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, jobq_relid("dependencies"), 0, CYCLE_LOCK);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/* True if one of the jobs waits for the job, however indirectly, or is it. */
static bool
reaches(ArrayType *parents, const pg_uuid_t *id)
{
	static const char sql[] =
		"WITH RECURSIVE up(id) AS (SELECT pg_catalog.unnest($1)"
		" UNION SELECT pg_catalog.unnest(q.after) FROM up JOIN jobq.queue q ON q.id OPERATOR(pg_catalog.=) up.id"
		"   AND q.status OPERATOR(pg_catalog.=) 'blocked') "
		"SELECT FROM up WHERE up.id OPERATOR(pg_catalog.=) $2 LIMIT 1";
	Oid			types[] = {UUIDARRAYOID, UUIDOID};
	Datum		values[] = {PointerGetDatum(parents), UUIDPGetDatum(id)};
	bool		found;

	SPI_connect();
	PushActiveSnapshot(GetLatestSnapshot());
	if (SPI_execute_with_args(sql, 2, types, values, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not look for a cycle");
	found = SPI_processed > 0;
	PopActiveSnapshot();
	SPI_finish();
	return found;
}

void
after_check_cycle(Request *request, const pg_uuid_t *id)
{
	Caller		caller;
	bool		found;

	if (after_count(request) == 0)
		return;
	lock_cycles();
	caller = act_as_owner();
	found = reaches(request->after, id);
	act_as_caller(caller);
	if (found)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"after\": job %s would wait for itself",
						DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id))))));
}
