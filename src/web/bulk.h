/*
 * bulk.h
 *	  Actions on many jobs: a preview, then steps of 1,000.
 */
#ifndef JOBQ_WEB_BULK_H
#define JOBQ_WEB_BULK_H

#include "route.h"

extern void bulks_open(void);
extern void bulk_preview(Call *call);
extern void bulk_start(Call *call);
extern void bulk_get(Call *call);
extern void bulk_stop(Call *call);

#endif
