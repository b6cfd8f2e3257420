/*
 * claim.h
 *	  POST claim: jobs for a worker, at once or when there are some.
 */
#ifndef JOBQ_WEB_CLAIM_H
#define JOBQ_WEB_CLAIM_H

#include "route.h"

extern void claims_open(void);
/* Ends all waits: this program is about to end. */
extern void claims_end(void);
extern void claim_post(Call *call);

#endif
