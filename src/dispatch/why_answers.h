/*
 * why_answers.h
 *	  The dispatcher's answers to jobq.why.
 */
#ifndef JOBQ_WHY_ANSWERS_H
#define JOBQ_WHY_ANSWERS_H

#include "lanes/queue_scan.h"

extern void why_init(MemoryContext context, JobqDb *db);
/* True if a request is to be answered in this turn. */
extern bool why_pending(MonoTime now);
/* Returns when the next request is to be answered; DT_NOEND: there is none. */
extern MonoTime why_next_timer(MonoTime now);
/* Answers some requests, after the hand-out; scan NULL: the queue can't be read. */
extern void why_turn(QueueScan *scan, TimestampTz now);

#endif
