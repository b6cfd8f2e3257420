/*
 * bad_rows.c
 *	  Rows of jobq.limits that the dispatcher cannot use: see bad_rows.h.
 */
#include "jobq.h"

#include "mb/pg_wchar.h"

#include "tables/bad_rows.h"

#define TROUBLE_LEN	256

static char found[TROUBLE_LEN] = ""; /* by the last reading */
static char known[TROUBLE_LEN] = ""; /* by the reading before: is in the log */

void
bad_rows_begin(void)
{
	found[0] = '\0';
}

void
bad_rows_note(const char *trouble)
{
	if (found[0] == '\0')
		strlcpy(found, trouble, pg_mbcliplen(trouble, (int) strlen(trouble), TROUBLE_LEN - 1) + 1);
}

void
bad_rows_end(void)
{
	if (found[0] != '\0' && strcmp(found, known) != 0)
		ereport(LOG,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq: %s: the row has no effect", found),
				 errhint("Change the row, or delete it.")));
	strlcpy(known, found, TROUBLE_LEN);
}

const char *
bad_rows_trouble(void)
{
	return found;
}
