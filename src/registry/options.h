/*
 * options.h
 *	  The option keys of a job type: their checks, and reading one from a row.
 *
 * The readers never fail: a row that a superuser wrote by hand must not stop
 * the dispatcher.  jobq_internal._check_options() comes before they are stored.
 */
#ifndef JOBQ_OPTIONS_H
#define JOBQ_OPTIONS_H

#include "jobq.h"
#include "registry/job_types.h"

/* The kinds of job types that use a key. */
#define FOR_SQL		0x01
#define FOR_EXEC	0x02
#define FOR_PULL	0x04
#define FOR_WORKFLOW 0x08
#define FOR_ALL		(FOR_SQL | FOR_EXEC | FOR_PULL | FOR_WORKFLOW)

/*
 * Read a JSON value; false when it is not of that type.  A number is whole,
 * and may be far beyond an int.
 */
extern bool value_number(const JsonbValue *value, double *result);
extern bool value_size(const JsonbValue *value, double *result);
extern bool value_interval(const JsonbValue *value, int64 *result);

/*
 * Return the value of a key, or `otherwise` when it is missing or not of that
 * type.
 */
extern bool option_bool(Jsonb *options, const char *key, bool otherwise);
extern int	option_int(Jsonb *options, const char *key, int otherwise);
extern int	option_size(Jsonb *options, const char *key, int otherwise);	/* bytes: number or '64MB' */
extern int64 option_interval(Jsonb *options, const char *key, int64 otherwise); /* microseconds */
extern bool option_is(Jsonb *options, const char *key, const char *word);

/*
 * Reads the texts of an array, at most max of them, palloc'd; returns their
 * number.
 */
extern int	option_texts(Jsonb *options, const char *key, char **texts, int max);

/* What permanent_exit_codes is without the key. */
#define PERMANENT_EXIT_CODES	"[125, 126, 127]"
#define IS_PERMANENT_EXIT_CODE(code) ((code) >= 125 && (code) <= 127)

/*
 * Reads aging: a step of one in priority every per_us, up to max; per_us 0:
 * the key is missing.
 */
extern void option_aging(Jsonb *options, int64 *per_us, int *max);
#define AGING_PER_US	INT64CONST(60000000)
#define AGING_MAX		10
/* Reads breaker; failures 0: the key is missing. */
extern void option_breaker(Jsonb *options, int *failures, int64 *pause_us);
#define BREAKER_FAILURES	10
#define BREAKER_PAUSE_US	USECS_PER_MINUTE
#define BREAKER_MAX_PAUSE_US (INT64CONST(100) * 365 * USECS_PER_DAY)
/* Reads min_batch; jobs 0: the key is missing. */
extern void option_min_batch(Jsonb *options, int *jobs, int64 *wait_us);
#define MIN_BATCH_JOBS		10
#define MIN_BATCH_MAX_JOBS	128
#define MIN_BATCH_WAIT_US	(5 * USECS_PER_SEC)
#define MIN_BATCH_MAX_WAIT_US	USECS_PER_DAY
extern char *option_text(Jsonb *options, const char *key);	/* NULL: not given */
extern OutputKind option_output(Jsonb *options);
extern EventsLevel option_events(Jsonb *options);

#endif
