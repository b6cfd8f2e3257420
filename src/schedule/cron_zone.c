/*
 * cron_zone.c
 *	  The server's time zones: see cron_zone.h.
 *
 * pg_tzset() also accepts POSIX specifications ("FOO-3"), which are no names of
 * pg_timezone_names.  Its canonical name tells them apart: that of a file is in
 * the case of the file, that of a specification is in upper case.  Only names of
 * upper case such as EST5EDT need a list of the files, which a process reads once,
 * in some 10 ms.
 *
 * The server reads the file of a zone once per process, and has no call to read
 * it anew.  A process inherits the zones that the postmaster has read: GMT, and
 * those that the settings timezone and log_timezone have had since its start.
 * So a new file counts in new processes, for these zones after a restart of the
 * server.  To read the files here would not be enough: a server may have been
 * built with files of its own, in a place that it does not tell.
 */
#include "jobq.h"

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "pgtime.h"
#include "utils/memutils.h"

#include "schedule/cron_zone.h"

int64_t
cron_zone_offset(const CronZone *zone, int64_t at, int64_t *until)
{
	pg_time_t	time = at;
	pg_time_t	boundary;
	long int	before;
	long int	after;
	int			before_dst;
	int			after_dst;
	int			found = pg_next_dst_boundary(&time, &before, &before_dst, &boundary, &after, &after_dst,
											 (const pg_tz *) zone);

	if (found < 0)
		elog(ERROR, "no offset of time zone \"%s\" at %lld", pg_get_timezone_name((pg_tz *) zone), (long long) at);
	*until = found > 0 ? boundary : INT64_MAX;
	return before;
}

static bool
has_lower_case(const char *name)
{
	while (*name != '\0' && !(*name >= 'a' && *name <= 'z'))
		name++;
	return *name != '\0';
}

/*
 * Returns the names of files without lower case, read once per process: some 40.
 */
static List *
upper_case_files(void)
{
	static List *files = NIL;
	static bool is_read = false;
	List	   *names = NIL;
	pg_tzenum  *walk;
	pg_tz	   *tz;

	if (is_read)
		return files;
	walk = pg_tzenumerate_start();
	while ((tz = pg_tzenumerate_next(walk)) != NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

		if (!has_lower_case(pg_get_timezone_name(tz)))
			names = lappend(names, pstrdup(pg_get_timezone_name(tz)));
		MemoryContextSwitchTo(caller);
	}
	pg_tzenumerate_end(walk);
	files = names;
	is_read = true;
	return files;
}

/* True if the canonical name of pg_tzset() is that of a file. */
static bool
is_file_name(const char *name)
{
	ListCell   *cell;

	if (strcmp(name, "UTC") == 0 || strcmp(name, "GMT") == 0 || has_lower_case(name))
		return true;
	foreach(cell, upper_case_files())
	{
		if (strcmp(name, lfirst(cell)) == 0)
			return true;
	}
	return false;
}

static bool
is_refused(const char *name)
{
	return strncmp(name, "posix/", 6) == 0 || strncmp(name, "right/", 6) == 0 ||
		strcmp(name, "posixrules") == 0 || strcmp(name, "Factory") == 0 || strcmp(name, "localtime") == 0;
}

const CronZone *
cron_zone_find(const char *name)
{
	pg_tz	   *tz = name[0] != '\0' && strlen(name) <= TZ_STRLEN_MAX ? pg_tzset(name) : NULL;
	const char *canonical;

	if (tz == NULL || !pg_tz_acceptable(tz))
		return NULL;
	canonical = pg_get_timezone_name(tz);
	if (pg_strcasecmp(name, canonical) != 0 || is_refused(canonical) || !is_file_name(canonical))
		return NULL;
	return (const CronZone *) tz;
}
