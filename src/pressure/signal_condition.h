/*
 * signal_condition.h
 *	  The conditions of signals: asked by the dispatcher, evaluated by
 *	  maintenance.
 */
#ifndef JOBQ_SIGNAL_CONDITION_H
#define JOBQ_SIGNAL_CONDITION_H

#include "shared/shmem.h"

/* Asks for the condition of that signal; false: too many are asked already. */
extern bool condition_ask(JobqDb *db, int32 signal);
extern bool conditions_are_asked(JobqDb *db);

/* Returns when the one that is evaluated has to have ended; DT_NOEND: none is. */
extern MonoTime condition_must_end(JobqDb *db);
/* Terminates the process of one that has not. */
extern void condition_terminate_overdue(JobqDb *db, MonoTime now);

/* In the process: evaluates the next one.  The session can't be used further. */
extern void condition_run(JobqDb *db);
/* At the exit of the process: one that DDL has interrupted is asked again. */
extern void condition_interrupted(JobqDb *db);

#endif
