/*
 * publish_ends.h
 *	  Publishes ends of jobs that others wait for to the conductor, when the
 *	  transaction has committed.
 *
 * Ends are hints: jobq.dependencies has the truth, and a conductor that has
 * lost news reads all edges.  publish_jobs.c calls the functions of the second
 * group.
 */
#ifndef JOBQ_PUBLISH_ENDS_H
#define JOBQ_PUBLISH_ENDS_H

#include "access/xact.h"
#include "shared/shmem.h"

/* Notes that a job waits for this one.  To be called before its state is read. */
extern void job_await(JobqDb *db, const pg_uuid_t *id);
/* The same for an edge that is committed. */
extern void job_mark_awaited(JobqDb *db, const pg_uuid_t *id);
/* True if a job may wait for this one. */
extern bool job_is_awaited(JobqDb *db, const pg_uuid_t *id);

/*
 * Notes that a job of that tenant (a hash) has left the queue, with that
 * JobStatus; is_task: of a run.
 */
extern void note_end(const pg_uuid_t *id, uint32 tenant, int status, bool is_task);
/*
 * Returns a mark for note_end_done; false: a transaction may commit edges
 * that a snapshot taken after the call does not see.
 */
extern bool edges_are_visible(JobqDb *db, uint32 *mark);
/*
 * Notes that the transaction has done what the end of that job does to others:
 * it is not published, unless a transaction has begun to wait since the mark.
 * *place moves over the ends; 0 at first.
 */
extern void note_end_done(const pg_uuid_t *id, uint32 mark, int *place);
/* Makes the conductor look at a job whose row was deleted, if one may wait for it. */
extern void note_removal(const pg_uuid_t *id);
/* Makes the conductor look at the job, or at the run: END_LOOK, END_READ. */
extern void note_look(const pg_uuid_t *id, uint32 tenant, int what);
/* Makes the conductor read all edges and runs. */
extern void note_look_at_all(void);
/* The same; until it has, every job counts as awaited. */
extern void note_unknown_edges(void);

/* Publishes the ends after the commit.  Cannot fail. */
extern void ends_publish(void);
/* Keeps in mind that a prepared transaction has ends. */
extern void ends_prepare(void);
/* Drops the ends of a rolled back savepoint and all younger ones. */
extern void ends_abort_sub(SubTransactionId subid);
extern void ends_forget(void);
/* Makes the conductor read all edges if the prepared transaction may have ends. */
extern void ends_prepared_ended(JobqDb *db);

#endif
