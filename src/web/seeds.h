/*
 * seeds.h
 *	  The routes of the seeds that are more than one call: /admin.
 */
#ifndef JOBQ_WEB_SEEDS_H
#define JOBQ_WEB_SEEDS_H

#include "route.h"

extern const char seeds_jobs[];
extern const char seeds_disk[];
extern void seeds_update_rule(Call *call);

#endif
