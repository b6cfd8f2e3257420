/*
 * inbox.h
 *	  Publications for the dispatcher.
 */
#ifndef JOBQ_INBOX_H
#define JOBQ_INBOX_H

#include "lanes/queue_scan.h"

/* News of the ring besides keys; set, never cleared by take_publications. */
typedef struct News
{
	bool		types_changed;
	bool		signals_changed;
	TimestampTz lost_from;		/* publications were lost from this key on; DT_NOEND: none */
	bool		prepared_lost;	/* keys of prepared transactions were lost */
} News;

extern void intake_init(MemoryContext context, JobqDb *db);
extern void take_publications(News *news);
/* Gives each publication to its lane; needs a transaction. */
extern void apply_publications(TimestampTz now);
extern void read_touched_lanes(QueueScan *scan);
/* Forgets the lanes to be read: lanes are about to be forgotten. */
extern void forget_touched_lanes(void);
/* True if a publication waits here for a turn with a transaction. */
extern bool intake_pending(void);

#endif
