/*
 * inbox.h
 *	  Publications for the dispatcher.
 */
#ifndef JOBQ_INBOX_H
#define JOBQ_INBOX_H

#include "lanes/queue_scan.h"

/* News of the ring besides keys; set, never cleared by inbox_take. */
typedef struct News
{
	bool		types_changed;
	bool		signals_changed;
	TimestampTz lost_from;		/* publications were lost from this key on; DT_NOEND: none */
	bool		prepared_lost;	/* keys of prepared transactions were lost */
} News;

extern void inbox_init(MemoryContext context, JobqDb *db);
extern void inbox_take(News *news);
/* Gives each publication to its lane; needs a transaction. */
extern void inbox_apply(TimestampTz now);
extern void inbox_read_lanes(QueueScan *scan);
/* Forgets the lanes to be read: lanes are about to be forgotten. */
extern void inbox_forget_lanes(void);
/* True if a publication waits here for a turn with a transaction. */
extern bool inbox_pending(void);

#endif
