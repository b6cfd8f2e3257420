/*
 * sections.c
 *	  The parts of feed.h as texts and tables.
 *
 * Texts of the database stay as they are here: table.c and screen.c escape
 * them when they are put on a line.
 */
#include "top/sections.h"

#include <string.h>

#include "top/feed.h"

#define LENGTH(a)	((int) (sizeof(a) / sizeof((a)[0])))

static const Column type_columns[] = {
	{"TYPE", false, 8}, {"DUE", true, 0}, {"PENDING", true, 0}, {"RUN", true, 0}, {"RETRY", true, 0}, {"FAILED", true, 0},
	{"DEAD", true, 0}, {"OLDEST", true, 0}, {"DRAIN", true, 0}, {"", false, 1}
};
static const Column running_columns[] = {
	{"JOB", false, 0}, {"TYPE", false, 8}, {"TRY", true, 0}, {"FOR", true, 0}, {"LEFT", true, 0}, {"KIND", false, 0},
	{"WORKER", false, 4}
};
static const Column waiting_columns[] = {
	{"JOB", false, 0}, {"TYPE", false, 8}, {"STATUS", false, 0}, {"PRIO", true, 0}, {"TRY", true, 0}, {"AGE", true, 0},
	{"DUE IN", true, 0}, {"TENANT", false, 4}
};
static const Column error_columns[] = {
	{"N", true, 0}, {"AGO", true, 0}, {"TYPE", false, 8}, {"CODE", false, 5}, {"ERROR", false, 10}
};

static Table sections[N_SECTIONS];

/* ---------- the verdict ---------- */

static bool
is_status(int row, int column, const char *status)
{
	return strcmp(part_value(PART_HEALTH, row, column), status) == 0;
}

int
verdict_level(void)
{
	if (part_rows(PART_HEALTH) == 0)
		return 3;
	return is_status(0, HEALTH_STATUS, "healthy") ? 0 : is_status(0, HEALTH_STATUS, "degraded") ? 1 : 2;
}

/* The number of checks that fail; they come first. */
static int
failing_checks(void)
{
	int			n = 0;

	while (n < part_rows(PART_HEALTH) && !is_status(n, HEALTH_CHECK_STATUS, "healthy"))
		n++;
	return n;
}

void
verdict_put(Buf *buf)
{
	static const char *const words[] = {
		"HEALTHY: all checks pass", "DEGRADED: the queue works, but", "UNHEALTHY: the queue does not work as it should:"
	};
	const Part *health = feed_part(PART_HEALTH);
	int			level = verdict_level();

	if (level == 3)
		buf_printf(buf, "UNKNOWN: %s", health->error ? health->error : "no answer yet");
	else if (level == 0)
		buf_str(buf, words[0]);
	else
	{
		int			n = failing_checks();

		buf_printf(buf, "%s %d check%s", words[level], n, n == 1 ? " fails: " : "s fail: ");
		for (int row = 0; row < n; row++)
			buf_printf(buf, "%s%s", row ? ", " : "", part_value(PART_HEALTH, row, HEALTH_CHECK));
	}
}

bool
verdict_check_put(Buf *buf, int row)
{
	if (row >= failing_checks())
		return false;
	buf_printf(buf, "  %s (%s): %s", part_value(PART_HEALTH, row, HEALTH_CHECK),
			   part_value(PART_HEALTH, row, HEALTH_CHECK_STATUS), part_value(PART_HEALTH, row, HEALTH_MESSAGE));
	return true;
}

/* ---------- sections ---------- */

static void
cell_duration(Table *table, const char *seconds)
{
	table_cell(table, text_duration(seconds));
}

static void
cell_count(Table *table, const char *count)
{
	table_cell(table, text_count(count));
}

static bool
is_true(const char *value)
{
	return value[0] == 't';
}

/* Why the section has no rows. */
static void
put_note(Table *table, PartId id, const char *none)
{
	const Part *part = feed_part(id);

	if (part->error && strcmp(part->sqlstate, "42501") == 0)
		buf_printf(&table->note, "no right to read this: %s", part->error);
	else
		buf_str(&table->note, part->error ? part->error : part->rows ? none : "no answer yet");
}

static void
put_type(Table *table, int row)
{
	const char *value[TYPE_PAUSED + 1];
	char		due[40];
	bool		grows;

	for (int c = 0; c <= TYPE_PAUSED; c++)
		value[c] = part_value(PART_TYPES, row, c);
	grows = !*value[TYPE_DRAIN_S] && *value[TYPE_DUE] && strcmp(value[TYPE_DUE], "0") != 0;
	strcpy(due, text_count(value[TYPE_DUE]));
	if (*value[TYPE_DUE] && !is_true(value[TYPE_DUE_EXACT]))
		strcat(due, "+");
	table_row(table, "");
	table_cell(table, *value[TYPE_NAME] ? value[TYPE_NAME] : "(others)");
	table_cell(table, due);
	for (int c = TYPE_PENDING; c <= TYPE_RETRY; c++)
		cell_count(table, value[c]);
	cell_count(table, value[TYPE_FAILURES]);
	cell_count(table, value[TYPE_DEAD]);
	cell_duration(table, value[TYPE_OLDEST_S]);
	table_cell(table, grows ? "grows" : text_duration(value[TYPE_DRAIN_S]));
	table_cell(table, is_true(value[TYPE_PAUSED]) ? "paused" : "");
}

static void
build_types(void)
{
	Table	   *table = &sections[SECTION_TYPES];

	table_begin(table, type_columns, LENGTH(type_columns));
	buf_printf(&table->title, "JOB TYPES %d", part_rows(PART_TYPES));
	put_note(table, PART_TYPES, "there are no job types");
	for (int row = 0; row < part_rows(PART_TYPES); row++)
		put_type(table, row);
}

static void
put_running(Table *table, int row)
{
	const char *pid = part_value(PART_WORKERS, row, WORKER_PID);
	const char *name = part_value(PART_WORKERS, row, WORKER_NAME);

	table_row(table, part_value(PART_WORKERS, row, WORKER_JOB));
	table_cell(table, part_value(PART_WORKERS, row, WORKER_JOB));
	table_cell(table, part_value(PART_WORKERS, row, WORKER_TYPE));
	table_cell(table, part_value(PART_WORKERS, row, WORKER_ATTEMPT));
	cell_duration(table, part_value(PART_WORKERS, row, WORKER_RUN_S));
	cell_duration(table, part_value(PART_WORKERS, row, WORKER_LEFT_S));
	table_cell(table, part_value(PART_WORKERS, row, WORKER_KIND));
	table_cell(table, *name ? name : pid);
}

static void
build_running(void)
{
	Table	   *table = &sections[SECTION_RUNNING];
	bool		any = part_rows(PART_WORKERS) > 0;

	table_begin(table, running_columns, LENGTH(running_columns));
	buf_printf(&table->title, "RUNNING %s, idle workers %s", any ? part_value(PART_WORKERS, 0, WORKER_RUNNING) : "0",
			   any ? part_value(PART_WORKERS, 0, WORKER_IDLE) : "0");
	put_note(table, PART_WORKERS, "no job runs");
	for (int row = 0; row < part_rows(PART_WORKERS); row++)
		if (*part_value(PART_WORKERS, row, WORKER_JOB))
			put_running(table, row);
}

static void
put_waiting(Table *table, int row)
{
	const char *due = part_value(PART_WAITING, row, WAITING_DUE_S);

	table_row(table, part_value(PART_WAITING, row, WAITING_ID));
	for (int c = WAITING_ID; c <= WAITING_PRIORITY; c++)
		table_cell(table, part_value(PART_WAITING, row, c));
	table_cell(table, part_value(PART_WAITING, row, WAITING_ATTEMPTS));
	cell_duration(table, part_value(PART_WAITING, row, WAITING_AGE_S));
	table_cell(table, due[0] == '-' ? "now" : text_duration(due));
	table_cell(table, part_value(PART_WAITING, row, WAITING_TENANT));
}

static void
build_waiting(void)
{
	Table	   *table = &sections[SECTION_WAITING];

	table_begin(table, waiting_columns, LENGTH(waiting_columns));
	buf_str(&table->title, "WAITING, the oldest");
	put_note(table, PART_WAITING, "no job waits");
	for (int row = 0; row < part_rows(PART_WAITING); row++)
		put_waiting(table, row);
}

static void
build_errors(void)
{
	Table	   *table = &sections[SECTION_ERRORS];

	table_begin(table, error_columns, LENGTH(error_columns));
	buf_str(&table->title, "ERRORS of dead letters and retries, the newest");
	put_note(table, PART_ERRORS, "there are none");
	for (int row = 0; row < part_rows(PART_ERRORS); row++)
	{
		table_row(table, "");
		cell_count(table, part_value(PART_ERRORS, row, ERROR_N));
		cell_duration(table, part_value(PART_ERRORS, row, ERROR_AGE_S));
		for (int c = ERROR_TYPE; c <= ERROR_PATTERN; c++)
			table_cell(table, part_value(PART_ERRORS, row, c));
	}
}

const Table *
sections_build(void)
{
	build_types();
	build_running();
	build_waiting();
	build_errors();
	return sections;
}

/* ---------- why ---------- */

static void
put_reason(Buf *buf, int row)
{
	const char *until = part_value(PART_WHY, row, WHY_UNTIL_S);
	const char *holder = part_value(PART_WHY, row, WHY_HOLDER);

	buf_printf(buf, "  %s: ", part_value(PART_WHY, row, WHY_CODE));
	text_put(buf, part_value(PART_WHY, row, WHY_MESSAGE), -1);
	if (*until)
		buf_printf(buf, "; ends in %s", until[0] == '-' ? "0s" : text_duration(until));
	if (*holder)
	{
		buf_str(buf, "; held by ");
		text_put(buf, holder, -1);
	}
	buf_str(buf, "\n");
}

void
why_put(Buf *buf, const char *id)
{
	const Part *why = feed_part(PART_WHY);

	buf_str(buf, "WHY ");
	text_put(buf, id, -1);
	buf_str(buf, "\n");
	if (!why->rows || part_rows(PART_WHY) == 0)
	{
		text_put(buf, why->error ? why->error : why->rows ? "no such job" : "asking ...", -1);
		buf_str(buf, "\n");
		return;
	}
	buf_printf(buf, "status: %s\n", part_value(PART_WHY, 0, WHY_STATUS));
	if (*part_value(PART_WHY, 0, WHY_AHEAD))
		buf_printf(buf, "ahead: %s%s\n", part_value(PART_WHY, 0, WHY_AHEAD),
				   is_true(part_value(PART_WHY, 0, WHY_EXACT)) ? "" : " or more");
	if (*part_value(PART_WHY, 0, WHY_START_S))
		buf_printf(buf, "starts in: %s\n", text_duration(part_value(PART_WHY, 0, WHY_START_S)));
	if (!*part_value(PART_WHY, 0, WHY_CODE))
		buf_str(buf, "nothing keeps it from starting\n");
	for (int row = 0; row < part_rows(PART_WHY) && *part_value(PART_WHY, row, WHY_CODE); row++)
		put_reason(buf, row);
}
