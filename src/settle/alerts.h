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
	const char *source;			/* who raises it */
	Jsonb	   *payload;		/* of the job; NULL: not at hand */
} Alert;

/* Is there a partition for an alert of then? */
extern bool alerts_ready(Ledger *ledger, TimestampTz ts);
/* About a job whose columns (of jobq.queue) these are; nothing when there is no partition. */
extern void alert_raise(Ledger *ledger, const Datum *values, const bool *nulls, JobType *type, const Alert *alert);
extern void alert_dead_letter(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt);
/* options.log_fields of a type, of that payload: {"field": value}; NULL: none is there. */
extern Jsonb *log_fields(JobType *type, Jsonb *payload);

#endif
