/*
 * failure_codes.h
 *	  options.permanent_codes and options.retry_codes: failures without a further attempt.
 */
#ifndef JOBQ_FAILURE_CODES_H
#define JOBQ_FAILURE_CODES_H

#include "settle/settle.h"

/* True if the failure is permanent by its code and the options of the type. */
extern bool failure_code_is_permanent(const JobType *type, const Outcome *o);

#endif
