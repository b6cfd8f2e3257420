/*
 * jobq.h
 *	  The header that every file of the extension includes: status names,
 *	  SQLSTATEs, settings, limits.
 *
 * Each header is the manual of its .c file.  docs/architecture.md has the map.
 */
#ifndef JOBQ_H
#define JOBQ_H

#include "postgres.h"

#include "fmgr.h"
#include "datatype/timestamp.h"
#include "storage/itemptr.h"
#include "utils/jsonb.h"
#include "utils/uuid.h"

#include "base/compat.h"

#define JOBQ_VERSION		"0.2.0"
#define JOBQ_MAX_ATTEMPTS	1000000
#define JOBQ_MIN_PRIORITY	(-100)
#define JOBQ_MAX_PRIORITY	100

/* jobq.job_status, in the order of its labels */
typedef enum JobStatus
{
	JOB_PENDING,
	JOB_BLOCKED,
	JOB_RETRY,
	JOB_RUNNING,
	JOB_COMPLETED,
	JOB_SKIPPED,
	JOB_CANCELLED,
	JOB_ERROR
} JobStatus;
#define JOB_NSTATUS (JOB_ERROR + 1)

/* The SQLSTATEs that a handler raises to choose the outcome of its attempt */
#define ERRCODE_JOBQ_SKIP		MAKE_SQLSTATE('J','Q','0','0','1')
#define ERRCODE_JOBQ_DISCARD	MAKE_SQLSTATE('J','Q','0','0','2')
#define ERRCODE_JOBQ_SNOOZE		MAKE_SQLSTATE('J','Q','0','0','3')
/* Of jobq itself: the data of a task do not fit its step (workflow/path.h) */
#define ERRCODE_JOBQ_BAD_INPUT	MAKE_SQLSTATE('J','Q','0','0','4')

/* settings (guc.c) */
extern int	jobq_max_concurrent;
extern int	jobq_max_weight;
extern double jobq_load_threshold;	/* per processor */
extern int	jobq_lag_threshold;			/* ms */
extern int	jobq_max_sql_workers;
extern int	jobq_sweep_interval;		/* ms */
extern char *jobq_job_type_filter;
extern char *jobq_tool_cgroup;
extern char *jobq_tool_path;
extern char *jobq_tool_env_file;
extern int	jobq_max_payload;			/* bytes, rendered */
extern int	jobq_max_schedules;			/* see schedule_limits.c */
extern int	jobq_max_output;			/* bytes */
extern int	jobq_shutdown_grace;		/* ms */
extern int	jobq_long_handler;			/* ms */
extern char *jobq_notify_prefix;
extern bool jobq_log_error_text;
extern bool jobq_notify_events;
extern int	jobq_notify_interval;		/* ms */
extern int	jobq_keep_events;			/* seconds */
extern int	jobq_partition_interval;	/* seconds */
extern bool jobq_allow_exec_under_pid1;
extern bool jobq_allow_superuser_handlers;
extern int	jobq_disk_warning;			/* per cent */
extern int	jobq_disk_critical;
extern int	jobq_disk_emergency;
extern int	jobq_health_dead_age;		/* seconds */
extern int	jobq_health_latency;		/* ms */
extern int	jobq_health_min_workers;
extern int	jobq_health_dead_letters;
extern char *jobq_alert_job_type;
extern char *jobq_tenant;
extern int	jobq_max_databases;
extern int	jobq_max_lanes;
extern int	jobq_max_stat_types;
extern char *jobq_metrics_prefix;
extern bool jobq_metrics_histograms;
extern int	jobq_metrics_types;
extern void jobq_define_settings(bool preloaded);
/* True if jobq.databases admits this database. */
extern bool database_is_admitted(const char *dbname);

#endif
