/*
 * dispatcher_turn.h
 *	  One turn of the dispatcher.
 */
#ifndef JOBQ_DISPATCHER_TURN_H
#define JOBQ_DISPATCHER_TURN_H

#include "shared/shmem.h"

extern void dispatcher_turn_init(MemoryContext context, JobqDb *db);

/* Runs a turn; true: executors had reports. */
extern bool dispatcher_turn(void);

/* Returns the time until something becomes due, in ms, a minute at most. */
extern long dispatcher_turn_sleep_ms(MonoTime now);

/* The configuration has been read again. */
extern void dispatcher_turn_settings_changed(void);

#endif
