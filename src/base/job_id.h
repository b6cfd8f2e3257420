/*
 * job_id.h
 *	  New ids of jobs.
 */
#ifndef JOBQ_JOB_ID_H
#define JOBQ_JOB_ID_H

/* Makes a UUIDv7: ordered in time, increasing within a backend. */
extern void make_job_id(pg_uuid_t *id);

#endif
