/*
 * job_id.h
 *	  New ids of jobs.
 */
#ifndef JOBQ_JOB_ID_H
#define JOBQ_JOB_ID_H

#include "datatype/timestamp.h"
#include "utils/uuid.h"

/* Makes a UUIDv7: ordered in time, increasing within a backend. */
extern void make_job_id(pg_uuid_t *id);
/* Returns the time at which the id was made. */
extern TimestampTz job_id_time(const pg_uuid_t *id);

#endif
