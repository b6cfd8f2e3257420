/*
 * wakeup_filter.h
 *	  Types whose new jobs could not start anyway: their commits need not wake the dispatcher.
 */
#ifndef JOBQ_WAKEUP_FILTER_H
#define JOBQ_WAKEUP_FILTER_H

#include "shared/shmem.h"

/* A new dispatcher wants to hear of everything. */
extern void quiet_init(JobqDb *db);
/* A publication of this type was taken. */
extern void quiet_note(int32 type_id);
/* Before going to sleep; true: something has come meanwhile that may have told nobody, look again. */
extern bool quiet_settle(void);

#endif
