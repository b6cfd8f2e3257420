/*
 * subtransaction.c
 *	  A function in a subtransaction of its own, whose error costs nothing else.
 *
 * The function runs in the caller's memory context, so what it allocates there
 * remains, also after an error.  An error resets the counts that hold off
 * interrupts; the caller gets them back as they were.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "base/subtransaction.h"

ErrorData *
try_subtransaction(void (*what) (void *arg), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	uint32		cancels_held = QueryCancelHoldoffCount;
	uint32		interrupts_held = InterruptHoldoffCount;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		what(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		QueryCancelHoldoffCount = cancels_held;
		InterruptHoldoffCount = interrupts_held;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}
