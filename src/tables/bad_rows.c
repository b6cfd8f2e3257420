/*
 * bad_rows.c
 *	  Rows of small tables that the dispatcher cannot use: see bad_rows.h.
 */
#include "jobq.h"

#include "mb/pg_wchar.h"

#include "tables/bad_rows.h"

#define TROUBLE_LEN	256

static char found[BAD_ROWS_KINDS][TROUBLE_LEN]; /* by the last reading */
static char known[BAD_ROWS_KINDS][TROUBLE_LEN]; /* by the reading before: is in the log */

void
bad_rows_begin(BadRows kind)
{
	found[kind][0] = '\0';
}

void
bad_rows_note(BadRows kind, const char *trouble)
{
	if (found[kind][0] == '\0')
		strlcpy(found[kind], trouble, pg_mbcliplen(trouble, (int) strlen(trouble), TROUBLE_LEN - 1) + 1);
}

void
bad_rows_end(BadRows kind)
{
	if (found[kind][0] != '\0' && strcmp(found[kind], known[kind]) != 0)
		ereport(LOG,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq: %s: the row has no effect", found[kind]),
				 errhint("Change the row, or delete it.")));
	strlcpy(known[kind], found[kind], TROUBLE_LEN);
}

const char *
bad_rows_trouble(void)
{
	for (int i = 0; i < BAD_ROWS_KINDS; i++)
	{
		if (found[i][0] != '\0')
			return found[i];
	}
	return "";
}
