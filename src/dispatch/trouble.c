/*
 * trouble.c
 *	  The text for health() that says why jobs do not run.
 */
#include "jobq.h"

#include "mb/pg_wchar.h"

#include "dispatch/admission.h"
#include "dispatch/trouble.h"
#include "workers/returned_jobs.h"

static JobqDb *db;

void
trouble_init(JobqDb *mine)
{
	db = mine;
}

void
set_trouble(const char *fmt,...)
{
	char		text[sizeof(db->health.trouble) + MAX_MULTIBYTE_CHAR_LEN];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	text[pg_mbcliplen(text, (int) strlen(text), sizeof(db->health.trouble) - 1)] = '\0';
	SpinLockAcquire(&db->mutex);
	strlcpy(db->health.trouble, text, sizeof(db->health.trouble));
	SpinLockRelease(&db->mutex);
}

void
trouble_turn(void)
{
	static char said[sizeof(db->health.trouble)] = "";
	char		text[sizeof(db->health.trouble)];

	pg_atomic_write_u32(&db->health.held, (uint32) held_type(HOLD_COMMIT));
	admission_trouble(text, sizeof(text));
	if (strcmp(text, said) == 0)
		return;
	strlcpy(said, text, sizeof(said));
	set_trouble("%s", text);
}
