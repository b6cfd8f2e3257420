/*
 * table_fit.c
 *	  Release and tables together: see table_fit.h.
 *
 * Both are checked again only after a change.  A table that is locked now is
 * checked in the next turn; until then the last answer holds: a table that an
 * open transaction changes is locked against every reader.
 */
#include "jobq.h"

#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "storage/lmgr.h"

#include "base/relations.h"
#include "lifecycle/release.h"
#include "tables/row_map.h"
#include "tables/table_fit.h"

static char last[512] = "";
static uint64 release_seen_at = 0;	/* relations_generation() */

/* Checks the release; false: pg_extension is locked. */
static bool
look_at_release(const char **trouble)
{
	*trouble = NULL;
	if (release_seen_at == relations_generation())
		return true;
	if (!ConditionalLockRelationOid(ExtensionRelationId, AccessShareLock) ||
		!ConditionalLockRelationOid(ExtensionNameIndexId, AccessShareLock))
		return false;
	*trouble = release_trouble();
	if (*trouble == NULL)
		release_seen_at = relations_generation();
	return true;
}

const char *
fit_trouble(void)
{
	const char *trouble;
	bool		complete = look_at_release(&trouble);

	if (complete && trouble == NULL)
		trouble = tables_trouble(&complete);
	if (complete || (trouble != NULL && trouble[0] != '\0'))
		strlcpy(last, trouble, sizeof(last));
	return last;
}
