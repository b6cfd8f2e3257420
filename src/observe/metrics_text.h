/*
 * metrics_text.h
 *	  The text of jobq.metrics(): families, samples, labels.
 */
#ifndef JOBQ_METRICS_TEXT_H
#define JOBQ_METRICS_TEXT_H

#include "lib/stringinfo.h"

#include "observe/type_stats.h"

typedef struct Metrics
{
	StringInfoData text;
	bool		openmetrics;
	const char *family;			/* the current one, without prefix and "_total" */
	bool		counter;
} Metrics;

typedef enum FamilyKind
{
	FAMILY_COUNTER,
	FAMILY_GAUGE,
	FAMILY_HISTOGRAM
} FamilyKind;

/* Begins a family: its HELP and TYPE lines. */
extern void metrics_family(Metrics *m, const char *name, FamilyKind kind, const char *help);

/*
 * Adds a sample of the family; labels: pairs of name and value, ended by NULL.
 * A counter's name gets "_total".
 */
extern void metrics_sample(Metrics *m, double value, ...);

/* Returns the text of a bucket's bound. */
extern char *metrics_bound(const Metrics *m, double bound);

/*
 * Adds the samples of a histogram of a job type: n has the buckets, the last
 * one for all beyond the bounds.
 */
extern void metrics_histogram(Metrics *m, const char *type, const int64 *n, char *const *bounds, int nbounds, double sum);

/* Adds the families of job types; of the database. */
extern void metrics_add_types(Metrics *m, JobqDb *db);
extern void metrics_add_database(Metrics *m, JobqDb *db);

#endif
