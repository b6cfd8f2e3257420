/*
 * exec_unstartable_types.c
 *	  Blocks job types with a tool that can't be started on this node: the
 *	  program is missing or not executable.
 *
 * The job is released uncharged, and the dispatcher blocks the type for a time
 * that doubles.  An entry keeps the fault of a type: it is reported once
 * (event, alert, log), and health() shows it while it lasts.  The fault ends
 * when a tool of the type starts.  Another definition with another error is a
 * new fault.  After a restart of the exec worker, the error in the job's row
 * shows that the fault was reported.
 *
 * No breaker (breaker.h) is used: it is the owner's option, counts attempts that
 * have failed, and survives the dispatcher.  Here no attempt was made, every
 * type is blocked at its first fault, and the fault is one of this node.  The
 * dispatcher's side is three short functions of type_state.c.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "exec_worker/exec_internal.h"

#define BLOCK_AGAIN_MS 1000		/* jobs started together fail together: they
								 * count once */
#define QUIET_MS 180000			/* the dispatcher retries sooner if a job
								 * waits */

/* A type with a tool that does not start on this node. */
typedef struct BrokenType
{
	int32		type_id;
	bool		broken;			/* false: its tool has started since */
	bool		shown;			/* in health() */
	uint32		tool_hash;		/* of the definition that failed */
	pg_uuid_t	job;			/* of the last attempt */
	char		why[160];
	MonoTime	blocked_at;		/* time of the last block by the dispatcher */

	/* of the open transaction, whose rollback takes it back */
	bool		reporting;
	bool		blocking;
} BrokenType;

static List *broken_types = NIL;

static BrokenType *
find_broken(int32 type_id)
{
	ListCell   *lc;

	foreach(lc, broken_types)
	{
		BrokenType *entry = lfirst(lc);

		if (entry->type_id == type_id)
			return entry;
	}
	return NULL;
}

/*
 * True if this exec worker was dismissed and its successor publishes the types
 * of the database; JobqShmem->lock is held.
 */
static bool
has_successor(void)
{
	if (!MySlot->dismissed)
		return false;
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		const Slot *slot = &JobqShmem->slots[i];

		if (slot->in_use && slot->kind == SLOT_EXEC && slot->dboid == MyDatabaseId &&
			slot->proc != NULL && !slot->dismissed)
			return true;
	}
	return false;
}

/*
 * Publishes the shown types for jobq.health(), each with the job that has the
 * error in its row.
 */
static void
show_broken_types(void)
{
	ListCell   *lc;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (has_successor())
	{
		LWLockRelease(JobqShmem->lock);
		return;
	}
	exec_db->unstartable.ntypes = 0;
	foreach(lc, broken_types)
	{
		BrokenType *entry = lfirst(lc);
		int			n = exec_db->unstartable.ntypes;

		if (!entry->shown)
			continue;
		if (n < JOBQ_MAX_UNSTARTABLE)
		{
			exec_db->unstartable.types[n].type_id = entry->type_id;
			exec_db->unstartable.types[n].job = entry->job;
		}
		exec_db->unstartable.ntypes++;
	}
	LWLockRelease(JobqShmem->lock);
}

void
exec_types_clear(void)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (!has_successor())
		exec_db->unstartable.ntypes = 0;
	LWLockRelease(JobqShmem->lock);
}

void
exec_type_started(ExecJob *job)
{
	BrokenType *entry = find_broken(job->ref.type_id);

	if (entry == NULL || !entry->broken)
		return;
	entry->broken = entry->shown = false;
	show_broken_types();
}

/* True if the fault has not been reported. */
static bool
is_new_fault(BrokenType *entry, ExecJob *x, const char *why, const char *reported)
{
	if (entry == NULL)
		return reported == NULL || strcmp(reported, why) != 0;
	if (!entry->broken)
		return true;
	return entry->tool_hash != x->tool_hash && strncmp(entry->why, why, sizeof(entry->why) - 1) != 0;
}

static BrokenType *
add_broken(int32 type_id)
{
	BrokenType *entry = MemoryContextAllocZero(ExecContext, sizeof(BrokenType));
	MemoryContext caller = MemoryContextSwitchTo(ExecContext);

	entry->type_id = type_id;
	broken_types = lappend(broken_types, entry);
	MemoryContextSwitchTo(caller);
	return entry;
}

bool
exec_type_broken(ExecJob *x, JobType *type, const char *why, const char *reported, bool *first)
{
	BrokenType *entry = find_broken(type->id);
	MonoTime	now = mono_now();

	*first = false;
	if (x->tool_hash != job_type_tool_hash(type))
		/* the definition has changed meanwhile: try at once */
		return false;
	*first = is_new_fault(entry, x, why, reported);
	if (entry == NULL)
		entry = add_broken(type->id);
	entry->reporting |= *first;
	entry->broken = entry->shown = true;
	entry->tool_hash = x->tool_hash;
	entry->job = x->ref.id;
	strlcpy(entry->why, why, sizeof(entry->why));
	show_broken_types();
	if (!mono_exceeds(entry->blocked_at, now, BLOCK_AGAIN_MS))
		return false;
	entry->blocked_at = now;
	entry->blocking = true;
	return true;
}

void
exec_types_settled(bool committed)
{
	ListCell   *lc;

	foreach(lc, broken_types)
	{
		BrokenType *entry = lfirst(lc);

		if (entry->reporting && !committed)
			entry->broken = false;	/* a new fault again */
		if (entry->blocking && !committed)
			entry->blocked_at = 0;
		entry->reporting = entry->blocking = false;
	}
}

void
exec_types_recheck(void)
{
	MonoTime	now = mono_now();
	bool		changed = false;
	ListCell   *lc;

	foreach(lc, broken_types)
	{
		BrokenType *entry = lfirst(lc);
		JobType    *type = job_type_by_id(entry->type_id);
		bool		gone = type == NULL || type->dropped;

		if (entry->shown && (gone || job_type_tool_hash(type) != entry->tool_hash ||
							 mono_exceeds(entry->blocked_at, now, QUIET_MS)))
		{
			entry->shown = false;
			changed = true;
		}
		if (!gone)
			continue;
		broken_types = foreach_delete_current(broken_types, lc);
		pfree(entry);
	}
	if (changed)
		show_broken_types();
}
