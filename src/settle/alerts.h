/*
 * alerts.h
 *	  Alerts: a row of jobq.alerts, a line in the server's log, a notification, a job.
 */
#ifndef JOBQ_ALERTS_H
#define JOBQ_ALERTS_H

#include "settle/settle.h"

typedef struct Alert
{
	bool		high;			/* severity high, else warning */
	const char *in_log;			/* the message without the error's text, for the log; NULL: not there */
	const char *title;
	const char *message;
	int			attempts;
	const char *error;
	const char *source;			/* of the event: sql, helper, client, dispatcher */
	Jsonb	   *payload;		/* of the job; NULL: not at hand */
} Alert;

/* True if there is a partition for an alert of that time. */
extern bool alerts_ready(Ledger *ledger, TimestampTz ts);

/*
 * Raises an alert about the job with these columns (of jobq.queue); does
 * nothing without a partition.
 */
extern void alert_raise(Ledger *ledger, const Datum *values, const bool *nulls, JobType *type, const Alert *alert);
extern void alert_dead_letter(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt);

/*
 * Returns the payload's fields of options.log_fields: {"field": value}; NULL:
 * it has none.
 */
extern Jsonb *log_fields(JobType *type, Jsonb *payload);

/* The checked columns of jobq.alerts: see table_shape.h. */
extern const struct Shape alerts_shape;

#endif
