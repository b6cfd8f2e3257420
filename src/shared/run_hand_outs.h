/*
 * run_hand_outs.h
 *	  Which runs the conductor may begin: those that the dispatcher counts.
 *
 * A hand-out has a number, which is open until the start of the run is over or
 * the dispatcher has taken the run back.  The conductor marks the number before
 * it starts the run, and the dispatcher takes back no marked one.  So a start
 * may wait for any time, in the ring, in the conductor or for a lock: it begins
 * only while its run has a place.
 */
#ifndef JOBQ_RUN_HAND_OUTS_H
#define JOBQ_RUN_HAND_OUTS_H

#include "shared/shmem.h"

/* Puts a start into the ring; returns its number, 0: there is no room. */
extern uint64 run_hand_out(JobqDb *db, const RunStart *start);
/* Takes a run back; false: the conductor is starting it. */
extern bool run_take_back(JobqDb *db, uint64 number);
/* Drops all that no conductor is starting: for a new dispatcher. */
extern void run_take_back_all(JobqDb *db);

/*
 * Marks starts that are about to begin.  Removes those that were taken back;
 * returns the number of the others.
 */
extern int	run_mark(JobqDb *db, RunStart *starts, int n);
/* Takes the marks back: the starts are tried again. */
extern void run_unmark(JobqDb *db, const RunStart *starts, int n);
/* Ends the hand-outs of marked starts: the dispatcher reads their rows. */
extern void run_starts_over(JobqDb *db, const RunStart *starts, int n);
/* Ends the hand-outs that a former conductor has marked. */
extern void run_drop_marks(JobqDb *db);

#endif
