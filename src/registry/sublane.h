/*
 * sublane.h
 *	  The lane of a tenant among the lanes of a fair type (options.fair_by).
 */
#ifndef JOBQ_SUBLANE_H
#define JOBQ_SUBLANE_H

#include "registry/job_types.h"

/*
 * Bounds the lanes of a type and priority.  Two tenants share one, and its
 * turns, with a probability of 1/4096.  Rows have it stored: another number or
 * hash leaves waiting jobs where they are.
 */
#define JOBQ_SUBLANES	4096

/*
 * Returns the lane's number; 0: the type is not fair, or there is no tenant.
 */
extern int16 sublane_of(const JobType *type, const text *tenant);

#endif
