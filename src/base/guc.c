/*
 * guc.c
 *	  The settings: names, defaults, ranges, contexts.
 *
 * Contexts.  jobq.max_databases, jobq.max_lanes and jobq.max_stat_types size
 * shared memory, so they are fixed at server start; so is jobq.tool_cgroup,
 * which belongs to the way in which the server was started.  jobq.databases (read by the launcher,
 * which is in no database) and jobq.allow_exec_under_pid1 (a property of the
 * machine) come from the configuration files only.  Every session may set
 * jobq.tenant and jobq.web_user.  All others are PGC_SUSET and not PGC_SIGHUP, for one reason:
 * ALTER DATABASE ... SET refuses PGC_SIGHUP, and each database may have its
 * own values.  They reload like PGC_SIGHUP ones; jobq's processes read their
 * database's values when they start, and jobq.reload() replaces them.  A
 * superuser's plain SET counts in that session only (say, jobq.max_payload of
 * its enqueues).
 */
#include "jobq.h"

#include <ctype.h>

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#define MAX_PREFIX_LEN	20		/* leaves room for the job type in a channel's name */
#define SECONDS_PER_DAY 86400

int			jobq_max_concurrent;
int			jobq_max_weight;
double		jobq_load_threshold;
int			jobq_lag_threshold;
int			jobq_max_sql_workers;
int			jobq_sweep_interval;
char	   *jobq_job_type_filter;
char	   *jobq_tool_cgroup;
char	   *jobq_tool_path;
char	   *jobq_tool_env_file;
int			jobq_max_payload;
int			jobq_max_schedules;
static int	jobq_max_tasks;		/* read by SQL: 58_runs.sql */
int			jobq_max_output;
int			jobq_shutdown_grace;
int			jobq_long_handler;
char	   *jobq_notify_prefix;
bool		jobq_log_error_text;
bool		jobq_notify_events;
int			jobq_notify_interval;
int			jobq_keep_events;
static int	jobq_keep_audit;	/* read by SQL: 20_partitions.sql */
int			jobq_partition_interval;
bool		jobq_allow_exec_under_pid1;
bool		jobq_allow_superuser_handlers;
int			jobq_disk_warning;
int			jobq_disk_critical;
int			jobq_disk_emergency;
int			jobq_health_dead_age;
int			jobq_health_latency;
int			jobq_health_min_workers;
int			jobq_health_dead_letters;
char	   *jobq_alert_job_type;
static char *jobq_before_drop_type;	/* read by SQL: 27_before_drop.sql */
char	   *jobq_tenant;
static char *jobq_web_user;		/* for tenant checks only */
static char *jobq_databases;
int			jobq_max_databases;
int			jobq_max_lanes;
int			jobq_max_stat_types;
char	   *jobq_metrics_prefix;
bool		jobq_metrics_histograms;
int			jobq_metrics_types;

static bool
has_control_character(const char *s)
{
	for (; *s; s++)
	{
		if (iscntrl((unsigned char) *s))
			return true;
	}
	return false;
}

/*
 * Also of job type names: bytes above 127 are fine, control characters are
 * not.
 */
static bool
check_plain_text(char **newval, void **extra, GucSource source)
{
	if (!has_control_character(*newval))
		return true;
	GUC_check_errdetail("The value contains a control character.");
	return false;
}

static bool
check_notify_prefix(char **newval, void **extra, GucSource source)
{
	if (!check_plain_text(newval, extra, source))
		return false;
	if (strlen(*newval) <= MAX_PREFIX_LEN)
		return true;
	GUC_check_errdetail("The prefix is longer than %d bytes.", MAX_PREFIX_LEN);
	return false;
}

static bool
check_metrics_prefix(char **newval, void **extra, GucSource source)
{
	static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:";

	if (**newval == '\0' || (strchr(first, **newval) && strspn(*newval, "0123456789" "abcdefghijklmnopqrstuvwxyz"
																"ABCDEFGHIJKLMNOPQRSTUVWXYZ_:") == strlen(*newval)))
		return true;
	GUC_check_errdetail("It must consist of letters, digits, \"_\" and \":\", and not begin with a digit.");
	return false;
}

static bool
check_databases(char **newval, void **extra, GucSource source)
{
	char	   *raw = pstrdup(*newval);
	List	   *names = NIL;
	bool		ok = SplitGUCList(raw, ',', &names);

	if (!ok)
		GUC_check_errdetail("List syntax is invalid.");
	list_free(names);
	pfree(raw);
	return ok;
}

/*
 * Checks a comma list of job type names, each perhaps behind a minus sign; an
 * unreadable list would run every type.
 */
static bool
check_job_type_filter(char **newval, void **extra, GucSource source)
{
	char	   *raw = pstrdup(*newval);
	List	   *names = NIL;
	ListCell   *lc;
	bool		ok;

	if (!check_plain_text(newval, extra, source))
		return false;
	ok = SplitGUCList(raw, ',', &names);
	foreach(lc, names)
	{
		const char *name = lfirst(lc);

		ok &= name[0] != '\0' && strcmp(name, "-") != 0;
	}
	if (!ok)
		GUC_check_errdetail("It must be a list of job types, separated by commas; one with a space or a comma in it stands in double quotes.");
	list_free(names);
	pfree(raw);
	return ok;
}

static bool
check_tool_path(char **newval, void **extra, GucSource source)
{
	const char *p = *newval;

	if (!check_plain_text(newval, extra, source))
		return false;
	for (;;)
	{
		if (*p != '/')
		{
			GUC_check_errdetail("Each directory, separated by colons, must be an absolute path.");
			return false;
		}
		p += strcspn(p, ":");
		if (*p == '\0')
			return true;
		p++;
	}
}

static bool
check_absolute(char **newval, void **extra, GucSource source)
{
	if (!check_plain_text(newval, extra, source))
		return false;
	if (**newval == '\0' || **newval == '/')
		return true;
	GUC_check_errdetail("The path must be absolute.");
	return false;
}

/* Define a setting: the calls below take one line each. */
static void
define_bool(const char *name, bool *var, bool boot, GucContext context, const char *short_desc,
			const char *long_desc)
{
	DefineCustomBoolVariable(name, short_desc, long_desc, var, boot, context, 0, NULL, NULL, NULL);
}

static void
define_int(const char *name, int *var, int boot, int min, int max, GucContext context, int unit,
		   const char *short_desc, const char *long_desc)
{
	DefineCustomIntVariable(name, short_desc, long_desc, var, boot, min, max, context, unit,
							NULL, NULL, NULL);
}

static void
define_string(const char *name, char **var, const char *boot, GucContext context, int flags,
			  GucStringCheckHook check, const char *short_desc, const char *long_desc)
{
	DefineCustomStringVariable(name, short_desc, long_desc, var, boot, context, flags,
							   check, NULL, NULL);
}

static void
define_switches(void)
{
	define_bool("jobq.allow_exec_under_pid1", &jobq_allow_exec_under_pid1, false, PGC_SIGHUP,
				"Runs tools also where the postmaster is process 1.",
				"There the server restarts when a process that a tool left behind fails.");
	define_bool("jobq.allow_superuser_handlers", &jobq_allow_superuser_handlers, true, PGC_SUSET,
				"Runs SQL handlers also as a superuser.", NULL);
	define_bool("jobq.log_error_text", &jobq_log_error_text, true, PGC_SUSET,
				"Writes texts of handlers and tools to the server's log.",
				"Off: lines about dead letters have no error text, and options.log_stderr logs nothing.");
	define_bool("jobq.metrics_histograms", &jobq_metrics_histograms, true, PGC_SUSET,
				"Shows histograms in jobq.metrics().", NULL);
	define_bool("jobq.notify_events", &jobq_notify_events, false, PGC_SUSET,
				"Notifies channel jobq_events when jobq.events has something new.", NULL);
}

static void
define_limits(void)
{
	define_int("jobq.max_concurrent", &jobq_max_concurrent, 50, 1, 1000000, PGC_SUSET, 0,
			   "Sets how many jobs of a database run at once, claimed ones included.", NULL);
	define_int("jobq.max_output", &jobq_max_output, 1024 * 1024, 1024, 256 * 1024 * 1024, PGC_SUSET,
			   GUC_UNIT_BYTE, "Sets how much a tool may write to its standard output.", NULL);
	define_int("jobq.max_payload", &jobq_max_payload, 1024 * 1024, 1024, 256 * 1024 * 1024, PGC_SUSET,
			   GUC_UNIT_BYTE, "Sets how large a payload may be when it is written out as text.", NULL);
	define_int("jobq.max_schedules", &jobq_max_schedules, 100000, 0, 10 * 1000 * 1000, PGC_SUSET, 0,
			   "Sets how many schedules a database may have.", NULL);
	define_int("jobq.max_sql_workers", &jobq_max_sql_workers, 4, 0, 64, PGC_SUSET, 0,
			   "Sets how many processes run SQL handlers in a database.",
			   "0 runs no SQL job. Processes count towards max_worker_processes.");
	define_int("jobq.max_tasks", &jobq_max_tasks, 100000, 1, 10 * 1000 * 1000, PGC_SUSET, 0,
			   "Sets how many elements the maps of a run of a workflow may have together.", NULL);
	define_int("jobq.metrics_types", &jobq_metrics_types, 1000, 0, 1000 * 1000, PGC_SUSET, 0,
			   "Sets how many job types have series of their own in jobq.metrics().",
			   "The oldest ones do; the others are added up as _other.");
	define_int("jobq.max_weight", &jobq_max_weight, 0, 0, 1000000, PGC_SUSET, 0,
			   "Sets how much the cpu_weight of running jobs may add up to.", "0 sets no limit.");
}

static void
define_times(void)
{
	define_int("jobq.keep_events", &jobq_keep_events, 30 * SECONDS_PER_DAY, 60,
			   10 * 366 * SECONDS_PER_DAY, PGC_SUSET, GUC_UNIT_S,
			   "Sets how long jobq.events keeps its rows.", NULL);
	define_int("jobq.keep_audit", &jobq_keep_audit, 365 * SECONDS_PER_DAY, SECONDS_PER_DAY,
			   10 * 366 * SECONDS_PER_DAY, PGC_SUSET, GUC_UNIT_S,
			   "Sets how long jobq.audit keeps its rows.", "Whole months are dropped.");
	define_int("jobq.lag_threshold", &jobq_lag_threshold, 30 * 1000, 100, SECONDS_PER_DAY * 1000, PGC_SUSET,
			   GUC_UNIT_MS, "Sets how far a standby may be behind before signal replication_lag is active.", NULL);
	DefineCustomRealVariable("jobq.load_threshold",
							 "Sets above which load average per processor signal load is active.",
							 "It is over when the load is below 80 % of that.",
							 &jobq_load_threshold, 1.5, 0.01, 1000, PGC_SUSET, 0, NULL, NULL, NULL);
	define_int("jobq.long_handler", &jobq_long_handler, 60 * 1000, 0, SECONDS_PER_DAY * 1000, PGC_SUSET,
			   GUC_UNIT_MS, "Sets after which time a running SQL handler counts as long.",
			   "jobq.health() counts them; 0: none is long.");
	define_int("jobq.notify_interval", &jobq_notify_interval, 20, 1, 60 * 1000, PGC_SUSET, GUC_UNIT_MS,
			   "Sets how long notifications are gathered before they are sent.", NULL);
	define_int("jobq.partition_interval", &jobq_partition_interval, SECONDS_PER_DAY, 60,
			   366 * SECONDS_PER_DAY, PGC_SUSET, GUC_UNIT_S,
			   "Sets how much time a partition of jobq.history and jobq.events covers.", NULL);
	define_int("jobq.shutdown_grace", &jobq_shutdown_grace, 5000, 0, 3600 * 1000, PGC_SUSET, GUC_UNIT_MS,
			   "Sets how long tools may take to end when the server stops.", NULL);
	define_int("jobq.sweep_interval", &jobq_sweep_interval, 1000, 10, 3600 * 1000, PGC_SUSET, GUC_UNIT_MS,
			   "Sets how often the dispatcher scans the queue for jobs that no commit announced.", NULL);
}

static void
define_disk(void)
{
	define_int("jobq.disk_critical", &jobq_disk_critical, 90, 0, 100, PGC_SUSET, 0,
			   "Sets how full, in per cent, a file system is at level critical.",
			   "Then expired rows are removed at once, and signal disk is set.");
	define_int("jobq.disk_emergency", &jobq_disk_emergency, 95, 0, 100, PGC_SUSET, 0,
			   "Sets how full, in per cent, a file system is at level emergency.",
			   "Then job types with options.refuse_on_disk_emergency take no jobs.");
	define_int("jobq.disk_warning", &jobq_disk_warning, 85, 0, 100, PGC_SUSET, 0,
			   "Sets how full, in per cent, a file system is at level warning.", NULL);
}

static void
define_health(void)
{
	define_int("jobq.health_dead_age", &jobq_health_dead_age, SECONDS_PER_DAY, 0, INT_MAX, PGC_SUSET, GUC_UNIT_S,
			   "Sets for how long a dead letter counts for the status of jobq.health().", "0: none counts.");
	define_int("jobq.health_dead_letters", &jobq_health_dead_letters, 100, 1, INT_MAX / 2, PGC_SUSET, 0,
			   "Sets how many dead letters of jobq.health_dead_age make jobq.health() say unhealthy.", NULL);
	define_int("jobq.health_latency", &jobq_health_latency, 100, 1, 60 * 1000, PGC_SUSET, GUC_UNIT_MS,
			   "Sets how fast the dispatcher must answer for jobq.health() to say healthy.", NULL);
	define_int("jobq.health_min_workers", &jobq_health_min_workers, 1, 0, 1000, PGC_SUSET, 0,
			   "Sets how many workers must run or be able to start for jobq.health() to say healthy.", NULL);
}

static void
define_strings(void)
{
	define_string("jobq.alert_job_type", &jobq_alert_job_type, "", PGC_SUSET, 0, check_plain_text,
				  "Names the job type that gets a job for each alert.", "Empty: none.");
	define_string("jobq.before_drop_type", &jobq_before_drop_type, "", PGC_SUSET, 0, check_plain_text,
				  "Names the job type that gets a job before rows of history, events or artifacts are dropped.",
				  "They stay until that job has completed. Empty: none.");
	define_string("jobq.databases", &jobq_databases, "", PGC_SIGHUP, GUC_LIST_INPUT, check_databases,
				  "Lists the databases whose jobs this server runs.",
				  "Empty: every database that has the extension. \"-\": none.");
	define_string("jobq.job_type_filter", &jobq_job_type_filter, "", PGC_SUSET, 0,
				  check_job_type_filter, "Lists the job types that this server runs.",
				  "Empty: all. A name behind a minus sign is left out.");
	define_string("jobq.metrics_prefix", &jobq_metrics_prefix, "jobq_", PGC_SUSET, 0, check_metrics_prefix,
				  "Sets what the names in jobq.metrics() begin with.", NULL);
	define_string("jobq.notify_prefix", &jobq_notify_prefix, "jobq_", PGC_SUSET, 0, check_notify_prefix,
				  "Sets what the names of job types' notification channels begin with.", NULL);
	define_string("jobq.tenant", &jobq_tenant, "", PGC_USERSET, 0, check_plain_text,
				  "Sets the tenant of jobs enqueued without one.",
				  "It is a default and protects nothing. Empty: no tenant.");
	define_string("jobq.tool_env_file", &jobq_tool_env_file, "", PGC_SUSET, GUC_SUPERUSER_ONLY,
				  check_absolute, "Names the file that options.pass_env reads values from.",
				  "Empty: none.");
	define_string("jobq.tool_path", &jobq_tool_path, "/usr/local/bin:/usr/bin:/bin", PGC_SUSET,
				  GUC_SUPERUSER_ONLY, check_tool_path,
				  "Lists the directories where tools without a path are looked up.", NULL);
	define_string("jobq.web_user", &jobq_web_user, "", PGC_USERSET, 0, NULL,
				  "Names the user for whom jobq-web works, where a proxy signs users in.",
				  "It protects nothing: a tenant check that uses it must also test session_user.");
}

/*
 * Defines the settings of the postmaster, which can't be defined after its
 * start.  A session that loads the library then gets ones that no code reads,
 * so that the names in postgresql.conf are known.
 */
static void
define_fixed(bool preloaded)
{
	GucContext	context = preloaded ? PGC_POSTMASTER : PGC_SIGHUP;

	define_int("jobq.max_databases", &jobq_max_databases, 16, 1, 1000, context, 0,
			   "Sets in how many databases jobs can run.", NULL);
	define_int("jobq.max_lanes", &jobq_max_lanes, 4096, 64, 65536, context, 0,
			   "Sets how many announcements of commits may wait for the dispatcher.",
			   "When more come, all lanes are read again from the earliest of them.");
	define_int("jobq.max_stat_types", &jobq_max_stat_types, 1024, 1, 1024 * 1024, context, 0,
			   "Sets how many job types of all databases have statistics of their own.",
			   "Further types of a database share an entry. Each takes 2 kB of shared memory.");
	define_string("jobq.tool_cgroup", &jobq_tool_cgroup, "", context, GUC_SUPERUSER_ONLY, check_absolute,
				  "Names the directory of the cgroup in which tools get cgroups of their own.",
				  "Empty: the one that systemd has delegated to the server, if any.");
}

void
jobq_define_settings(bool preloaded)
{
	define_switches();
	define_limits();
	define_times();
	define_disk();
	define_health();
	define_strings();
	define_fixed(preloaded);
	MarkGUCPrefixReserved("jobq");
}

bool
database_is_admitted(const char *dbname)
{
	char	   *raw = pstrdup(jobq_databases);
	List	   *names = NIL;
	ListCell   *lc;
	bool		admitted;

	/* the check hook admits lists only */
	if (!SplitGUCList(raw, ',', &names))
		return false;
	admitted = names == NIL;
	foreach(lc, names)
	{
		if (strcmp((char *) lfirst(lc), dbname) == 0)
			admitted = true;
	}
	list_free(names);
	pfree(raw);
	return admitted;
}
