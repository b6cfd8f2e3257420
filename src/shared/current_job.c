/*
 * current_job.c
 *	  The job whose SQL handler runs in this process.
 */
#include "jobq.h"

#include "shared/current_job.h"

static const CurrentJob *current = NULL;

const CurrentJob *
current_job(void)
{
	return current;
}

void
current_job_set(const CurrentJob *job)
{
	current = job;
}
