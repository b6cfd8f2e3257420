/*
 * exec_unstartable_types.c
 *	  Job types whose tool can't be started on this node: a program that is missing or not executable.
 *
 * Such a job is put back uncharged and the dispatcher holds its type for a time that doubles.  An entry here keeps
 * the fault of a type, to report it once (event, alert, log) and as long as it lasts (health).  The fault ends when a
 * tool of the type starts; another definition with another error is another fault.  An exec worker that is new finds
 * the report in the job's row.
 */
#include "jobq.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "exec_worker/exec_internal.h"

#define HOLD_AGAIN_MS 1000		/* jobs that were started together fail together: they count once */
#define QUIET_MS 180000			/* the dispatcher tries a type sooner: without a try, no job waits for it */

/* A type whose tool does not start on this node. */
typedef struct BrokenType
{
	int32		type_id;
	bool		broken;			/* else it has started since */
	bool		shown;			/* in health() */
	uint32		tool_hash;		/* of the definition that failed */
	pg_uuid_t	job;			/* that tried last */
	char		why[160];
	MonoTime	held_at;		/* when the dispatcher was last told */
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

/* For jobq.health(): types that are shown, each with the job whose row says why. */
static void
show_broken_types(void)
{
	ListCell   *lc;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
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
exec_types_leave(void)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
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
	return !entry->broken || (entry->tool_hash != x->tool_hash && strncmp(entry->why, why, sizeof(entry->why) - 1) != 0);
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
		return false;			/* the type has another definition meanwhile, to be tried at once */
	*first = is_new_fault(entry, x, why, reported);
	if (entry == NULL)
		entry = add_broken(type->id);
	entry->broken = entry->shown = true;
	entry->tool_hash = x->tool_hash;
	entry->job = x->ref.id;
	strlcpy(entry->why, why, sizeof(entry->why));
	show_broken_types();
	if (!mono_exceeds(entry->held_at, now, HOLD_AGAIN_MS))
		return false;
	entry->held_at = now;
	return true;
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
							 mono_exceeds(entry->held_at, now, QUIET_MS)))
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
