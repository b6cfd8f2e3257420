/*
 * release_children.c
 *	  Releases jobs in the transaction that ends all that they wait for, so
 *	  that a chain costs no further commit.
 *
 * SQL workers and exec workers call this at the end of a transaction.  The
 * conductor counts edges (edges.c); this counts none.  It releases a child
 * whose rule is met by these ends, deletes their edges, or leaves both as they
 * are.  The end of a parent is published to the conductor as any other, if edges
 * were left or some may exist that this transaction does not see
 * (publish_ends.c).
 *
 * Edges and child are read with one snapshot, in which waiting_for is the
 * number of the child's edges.  Every change of one of them changes the row.  So
 * the very version of the snapshot is locked, or nothing is done.
 *
 * Nothing is waited for: neither the tables nor a row.  A subtransaction
 * keeps an error from the ends of the parents.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/conditional_lock.h"
#include "base/relations.h"
#include "base/subtransaction.h"
#include "registry/job_types.h"
#include "settle/release_blocked.h"
#include "shared/publish_ends.h"
#include "tables/edge_table.h"
#include "tables/home.h"
#include "tables/queue_find.h"
#include "workflow/after_rules.h"
#include "workflow/release_children.h"

#define EDGES_OF_PARENT	64
#define EDGES_OF_ALL	256
#define FIRST_SIZE		16

/* An edge of an ended parent. */
typedef struct ChildEdge
{
	Edge		edge;
	int			parent;			/* its index */
	int			status;
} ChildEdge;

typedef struct Children
{
	Ledger		ledger;
	Table		edges;
	int32		home;
	ChildEdge	found[EDGES_OF_ALL];
	int			nfound;
	bool	   *left;			/* of each parent: it may have edges */
	bool		sees_all;		/* and no other ones are open */
	uint32		mark;
} Children;

void
parents_add(EndedParents *parents, Job *job, JobStatus status)
{
	JobqDb	   *db = my_db();

	if (status < JOB_COMPLETED || db == NULL || !JOB_NULL(job, Q_workflow_id) || !job_is_awaited(db, JOB_ID(job)))
		return;
	if (parents->n == parents->size)
	{
		parents->size = parents->size == 0 ? FIRST_SIZE : parents->size * 2;
		parents->ends = parents->ends == NULL ? palloc(sizeof(JobEnd) * parents->size) :
			repalloc(parents->ends, sizeof(JobEnd) * parents->size);
	}
	parents->ends[parents->n++] = (JobEnd) {.id = *JOB_ID(job), .status = status};
}

/* ---------- edges ---------- */

/* Locks the table of edges and its indexes if they are free. */
static bool
lock_edges(void)
{
	Oid			relid = jobq_relid("dependencies");
	Relation	rel;
	bool		locked;

	if (!OidIsValid(relid) || !ConditionalLockRelationOid(relid, RowExclusiveLock))
		return false;
	rel = RelationIdGetRelation(relid);
	if (!RelationIsValid(rel))
		return false;
	locked = lock_indexes_if_free(rel);
	RelationClose(rel);
	return locked;
}

static int
compare_edges(const void *a, const void *b)
{
	const ChildEdge *p = a;
	const ChildEdge *q = b;
	int			result = memcmp(&p->edge.child, &q->edge.child, UUID_LEN);

	return result != 0 ? result : p->parent - q->parent;
}

static void
read_edges(Children *c, EndedParents *parents)
{
	Edge		read[EDGES_OF_PARENT];

	for (int i = 0; i < parents->n; i++)
	{
		int			room = Min(EDGES_OF_PARENT, EDGES_OF_ALL - c->nfound);
		int			n = edges_of(&c->edges, &parents->ends[i].id, GetActiveSnapshot(), 0, read, room);

		c->left[i] = n == room;
		for (int k = 0; k < n; k++)
			c->found[c->nfound++] = (ChildEdge) {read[k], i, parents->ends[i].status};
	}
	qsort(c->found, c->nfound, sizeof(ChildEdge), compare_edges);
}

/* ---------- children ---------- */

/* True if the ends meet the child's rule. */
static bool
is_met(Job *job, ChildEdge *edges, int n)
{
	Ends		sum = {0};
	int			left;
	int			state;

	for (int i = 0; i < n; i++)
	{
		if (i > 0 && edges[i].parent == edges[i - 1].parent)
			continue;
		sum.n++;
		sum.completed += edges[i].status == JOB_COMPLETED;
		sum.dead += edges[i].status == JOB_ERROR;
		sum.cancelled += edges[i].status == JOB_CANCELLED;
	}
	if (sum.dead > 0 && after_rule_of(job) == AFTER_SUCCESS)
		return false;			/* a dead letter holds the child */
	return after_decide(job, &sum, &left, &state) == RELEASED;
}

/* True if the event of the release can be written without waiting. */
static bool
event_ready(Children *c, JobType *type)
{
	return !EVENTS_WANTED(type, EVENTS_ALL) ||
		ConditionalLockRelationOid(jobq_relid("events"), AccessShareLock);
}

/* Releases the child of these edges; false: it is left to the conductor. */
static bool
release(Children *c, ChildEdge *edges, int n)
{
	JobType    *type;
	Job			job;

	if (!queue_find_by_id(&c->ledger.queue, &edges->edge.child, GetActiveSnapshot(), &job) ||
		job.status != JOB_BLOCKED || JOB_INT(&job, Q_home_id) != c->home || !JOB_NULL(&job, Q_workflow_id) ||
		!is_met(&job, edges, n))
		return false;
	type = job_type_by_id(JOB_INT(&job, Q_type_id));
	if (type == NULL || !event_ready(c, type) || !queue_lock_seen(&c->ledger.queue, &job))
		return false;
	release_blocked(&c->ledger, &job, type, 0);
	for (int i = 0; i < n; i++)
		edge_delete(&c->edges, &edges[i].edge);
	return true;
}

static void
release_all(Children *c)
{
	int			n;

	ledger_open(&c->ledger);
	for (int i = 0; i < c->nfound; i += n)
	{
		CHECK_FOR_INTERRUPTS();
		for (n = 1; i + n < c->nfound && memcmp(&c->found[i].edge.child, &c->found[i + n].edge.child, UUID_LEN) == 0; n++)
			;
		if (release(c, &c->found[i], n))
			continue;
		for (int k = i; k < i + n; k++)
			c->left[c->found[k].parent] = true;
	}
	ledger_close(&c->ledger);
}

/* The ends of the transaction are visible to its own snapshot of now. */
static void
find_and_release(Children *c, EndedParents *parents)
{
	if (!home_is_ours(&c->home) || !lock_edges())
		return;
	CommandCounterIncrement();
	c->sees_all = edges_are_visible(my_db(), &c->mark);
	PushActiveSnapshot(GetLatestSnapshot());
	edges_open(&c->edges);
	read_edges(c, parents);
	if (c->nfound > 0)
		release_all(c);
	table_close_after_write(&c->edges);
	PopActiveSnapshot();
}

/* The conductor need not look at parents all of whose children are released. */
static void
note_done(Children *c, EndedParents *parents)
{
	int			place = 0;

	for (int i = 0; i < parents->n && c->sees_all; i++)
	{
		if (!c->left[i])
			note_end_done(&parents->ends[i].id, c->mark, &place);
	}
}

typedef struct Releasing
{
	Children   *children;
	EndedParents *parents;
} Releasing;

static void
release_children(void *arg)
{
	Releasing  *r = arg;

	find_and_release(r->children, r->parents);
}

void
parents_release_children(EndedParents *parents)
{
	MemoryContext context;
	MemoryContext old;
	Releasing	releasing = {.parents = parents};
	ErrorData  *error;

	if (parents->n == 0)
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "jobq children", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	releasing.children = palloc0(sizeof(Children));
	releasing.children->left = palloc0(sizeof(bool) * parents->n);
	error = try_subtransaction(release_children, &releasing);
	if (error == NULL)
		note_done(releasing.children, parents);
	else
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("jobq: the conductor will release jobs that wait for an ended job: %s", error->message)));
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
