/*
 * statistics.h
 *	  The dispatcher's part of the statistics: totals over time, jobs that are due.
 */
#ifndef JOBQ_STATISTICS_H
#define JOBQ_STATISTICS_H

#include "lanes/queue_scan.h"

extern void statistics_init(MemoryContext context, JobqDb *db);
/* True if statistics_turn() should be called. */
extern bool statistics_due(MonoTime now);
/*
 * Counts the jobs that are due, unless the queue is locked (NULL), and takes a
 * sample; in a transaction.
 */
extern void statistics_turn(QueueScan *scan, TimestampTz now, MonoTime mono);
extern MonoTime statistics_next_timer(MonoTime now);
/* Counts a turn of the dispatcher, and why it has woken up. */
extern void statistics_note_turn(StatWakeup why);

#endif
