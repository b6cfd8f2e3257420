/*
 * job_status.h
 *	  The labels of type jobq.job_status and their oids.
 */
#ifndef JOBQ_JOB_STATUS_H
#define JOBQ_JOB_STATUS_H

extern Oid	status_oid(JobStatus status);
extern JobStatus status_from_oid(Oid oid);
extern const char *status_name(JobStatus status);

#endif
