/*
 * cancel_requests.h
 *	  Requests to cancel jobs that run, or ran at the time of the request.
 */
#ifndef JOBQ_CANCEL_REQUESTS_H
#define JOBQ_CANCEL_REQUESTS_H

#include "lanes/queue_scan.h"

extern void cancels_init(MemoryContext context, JobqDb *db);
/* Takes requests from shared memory. */
extern void cancels_take(void);
/* Serves requests; scan may be NULL. */
extern void cancels_run(QueueScan *scan);
/* Hands out jobs that are only to be settled as cancelled. */
extern void cancels_hand_out(MonoTime now);
/* Repeats a cancel that met an attempt which ended otherwise. */
extern void cancel_after_all(const pg_uuid_t *id, const char *reason);
/* The same, not before that time. */
extern void cancel_later(const pg_uuid_t *id, const char *reason, MonoTime not_before);
extern MonoTime cancels_next_timer(MonoTime now);

/*
 * Looks up all jobs again that wait to be settled as cancelled: their rows
 * have moved.
 */
extern void cancels_reread(void);
/* True if a request waits here for a turn with a transaction. */
extern bool cancels_pending(void);

/*
 * Gives requests back to shared memory, for the next dispatcher: the process
 * ends.
 */
extern void cancels_leave(void);

#endif
