/*
 * queue_triggers.h
 *	  What the triggers of jobq's tables need of folders after theirs.
 */
#ifndef JOBQ_QUEUE_TRIGGERS_H
#define JOBQ_QUEUE_TRIGGERS_H

/* Sets the function that returns true if jobs of the type are runs of workflows. */
extern void triggers_set_run_types(bool (*is_run_type) (int32 type_id));

#endif
