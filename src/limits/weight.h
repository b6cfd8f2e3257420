/*
 * weight.h
 *	  How much may run at once by weight: cpu_weight of the running jobs against jobq.max_weight.
 */
#ifndef JOBQ_WEIGHT_H
#define JOBQ_WEIGHT_H

#include "workers/executor_pool.h"

/* pressure_max_weight() as of the last reload of the registry; 0: off, and nothing below is called per job */
extern int	weight_budget;

/* Before everything is counted anew with weight_occupy. */
extern void weight_restart(void);
extern void weight_occupy(Executor *e, int cell, int weight);
extern void weight_vacate(Executor *e, int cell);
/* Would one more job of that weight fit there, or in an executor without jobs (NULL)?  What is heavier than the budget fits alone. */
extern bool weight_fits(const Executor *e, int weight);

/* The group's head is too heavy now, or weight is reserved for one before it. */
extern void weight_park(LaneGroup *group, const Rank *rank);
extern void weight_unpark(void);
extern void weight_forget_lanes(void);
/* A head that was passed often enough has what becomes free reserved for it: must this job wait? */
extern bool weight_is_reserved(const TypeState *t, const Rank *rank);
/* The group's head has been handed out. */
extern void weight_note_start(LaneGroup *group, const Rank *rank);

#endif
