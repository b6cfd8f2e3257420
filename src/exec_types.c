/*
 * exec_types.c
 *	  Job types whose tool can't be started on this node: a program that is missing or not executable.
 *
 * Such a job is put back uncharged and the dispatcher holds its type for a time that doubles.  Here is
 * remembered which types that concerns, to say it once (event, log) and as long as it lasts (health).
 */
#include "jobq.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "exec_job.h"

#define HOLD_AGAIN_MS 1000		/* jobs that were started together fail together: they count once */

/* A type whose tool does not start on this node. */
typedef struct BrokenType
{
	int32		type_id;
	char		name[NAMEDATALEN];
	char		why[160];
	TimestampTz held_at;		/* when the dispatcher was last told */
} BrokenType;

static List *broken_types = NIL;
static uint64 broken_generation;	/* of the registry, when the last of them was found */

static BrokenType *
find_broken(int32 type_id)
{
	ListCell   *lc;

	foreach(lc, broken_types)
	{
		BrokenType *broken = lfirst(lc);

		if (broken->type_id == type_id)
			return broken;
	}
	return NULL;
}

static void
say_broken_types(void)
{
	BrokenType *broken;

	if (broken_types == NIL)
	{
		exec_say_types_trouble("");
		return;
	}
	broken = linitial(broken_types);
	exec_say_types_trouble(psprintf("%d job type(s) paused on this node; \"%s\": %s",
									list_length(broken_types), broken->name, broken->why));
}

void
exec_type_started(ExecJob *job)
{
	BrokenType *broken = find_broken(job->ref.type_id);

	if (broken == NULL)
		return;
	broken_types = list_delete_ptr(broken_types, broken);
	pfree(broken);
	say_broken_types();
}

bool
exec_type_broken(JobType *type, const char *why, bool *first)
{
	BrokenType *broken = find_broken(type->id);
	TimestampTz now = GetCurrentTimestamp();

	*first = broken == NULL;
	if (broken == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(ExecContext);

		broken = palloc0(sizeof(BrokenType));
		broken->type_id = type->id;
		broken_types = lappend(broken_types, broken);
		MemoryContextSwitchTo(caller);
	}
	broken_generation = job_types_generation();
	strlcpy(broken->name, type->name, sizeof(broken->name));
	strlcpy(broken->why, why, sizeof(broken->why));
	say_broken_types();
	if (!TimestampDifferenceExceeds(broken->held_at, now, HOLD_AGAIN_MS))
		return false;
	broken->held_at = now;
	return true;
}

void
exec_types_recheck(void)
{
	if (broken_types == NIL || broken_generation == job_types_generation())
		return;
	list_free_deep(broken_types);
	broken_types = NIL;
	say_broken_types();
}
