/*
 * claim_request.h
 *	  The arguments of jobq.claim.
 */
#ifndef JOBQ_CLAIM_REQUEST_H
#define JOBQ_CLAIM_REQUEST_H

#include "fmgr.h"
#include "registry/job_types.h"
#include "shared/claims.h"

typedef struct ClaimRequest
{
	FunctionCallInfo call;
	Oid			caller;
	int			ntypes;
	int32		types[JOBQ_CLAIM_TYPES];
	ClaimScope	scope;
	ClaimTypes	begun;			/* those of which it has claimed jobs */
	int			max_jobs;
	const char *worker;
	const char *node;			/* NULL: none */
	int64		lease_us;
	int64		wait_us;
	bool		named;			/* job_types was not NULL */
	uint32		changes;		/* Lifecycle.changes when the call began */
} ClaimRequest;

/* Reads and checks the arguments and the caller's rights. */
extern void claim_request_read(ClaimRequest *request, FunctionCallInfo fcinfo);

/* Raises 22003 if the lease is longer than the type allows. */
extern void claim_check_lease(const ClaimRequest *request, const JobType *type);

/* Raises 42704 if a type that the caller named was dropped meanwhile. */
extern void claim_check_types(const ClaimRequest *request);

/* Returns a text argument, NULL for NULL; 22023 or 54000 for a bad name. */
extern char *name_argument(FunctionCallInfo fcinfo, int i, const char *name);

#endif
