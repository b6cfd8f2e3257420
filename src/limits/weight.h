/*
 * weight.h
 *	  How much may run at once by weight: cpu_weight of the running jobs
 *	  against jobq.max_weight.
 */
#ifndef JOBQ_WEIGHT_H
#define JOBQ_WEIGHT_H

#include "limits/type_state.h"

/* The weight that the cells of one executor hold (executor_pool.h). */
typedef struct HeldWeight
{
	bool		exec;			/* true: the sum of its cells, of tools that run at once; else the largest */
	int			total;
	int			cells[JOBQ_CELLS];
} HeldWeight;

/*
 * pressure_max_weight() as of the last reload of the registry; 0: off, and
 * nothing below is called per job
 */
extern int	weight_budget;

/*
 * Forgets all running jobs: they are counted again with weight_clear and
 * weight_occupy.
 */
extern void weight_restart(void);
/* Returns the weight of the running jobs. */
extern int64 weight_used(void);
/* Counts a job that clients work; below zero: stops counting it. */
extern void weight_add(int weight);
extern void weight_clear(HeldWeight *held, bool exec);
extern void weight_occupy(HeldWeight *held, int cell, int weight);
extern void weight_vacate(HeldWeight *held, int cell);

/*
 * True if one more job of that weight fits into the executor; NULL: into one
 * without jobs.  A job that is heavier than the budget fits alone.
 */
extern bool weight_fits(const HeldWeight *held, int weight);

/*
 * Parks the group: its head is too heavy now, or weight is reserved for one
 * before it.
 */
extern void weight_park(LaneGroup *group, const Rank *rank);
extern void weight_unpark(void);
extern void weight_forget_lanes(void);
/* True if a group waits for weight. */
extern bool weight_has_groups(void);

/*
 * True if this job must wait: weight that becomes free is reserved for a head
 * that was passed often enough.
 */
extern bool weight_is_reserved(const TypeState *t, const Rank *rank);
/* Ends the reservation for the group's head: it has been handed out. */
extern void weight_note_start(LaneGroup *group, const Rank *rank);

#endif
