/*
 * publish_schedules.h
 *	  Publishes changes of schedules, and ends of their jobs, to the conductor
 *	  at the end of a transaction.
 *
 * publish_jobs.c calls the functions of the second group.
 */
#ifndef JOBQ_PUBLISH_SCHEDULES_H
#define JOBQ_PUBLISH_SCHEDULES_H

#include "access/xact.h"
#include "shared/shmem.h"

/* Notes a written row of jobq.schedules; 0: any row. */
extern void note_schedule(int32 schedule_id);
/* Notes that a job of a tick has left the queue, with that JobStatus. */
extern void note_scheduled_end(int32 schedule_id, const pg_uuid_t *job_id, int status, TimestampTz ended_at);

/* Sets the latch of the conductor, or of the dispatcher, which starts one. */
extern void wake_conductor(JobqDb *db);

/* Publishes the news; db->mutex is held.  True: call wake_conductor(). */
extern bool schedule_news_publish(JobqDb *db);
/* Keeps in mind that a prepared transaction has news; db->mutex is held. */
extern void schedule_news_prepare(JobqDb *db);
/* Drops the news of a rolled back savepoint and all younger ones. */
extern void schedule_news_abort_sub(SubTransactionId subid);
extern void schedule_news_forget(void);
/* Makes the conductor read all schedules if the transaction may have news. */
extern void schedule_news_prepared_ended(JobqDb *db);

#endif
