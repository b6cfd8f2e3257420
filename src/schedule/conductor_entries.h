/*
 * conductor_entries.h
 *	  The conductor's memory: an entry for each schedule that may tick, in a
 *	  heap by the time at which it is due.
 */
#ifndef JOBQ_CONDUCTOR_ENTRIES_H
#define JOBQ_CONDUCTOR_ENTRIES_H

#include "lib/pairingheap.h"

#include "schedule/schedule_row.h"

/* 80 bytes; the rest of a schedule is in its row. */
typedef struct ScheduleEntry
{
	int32		id;				/* hash key */
	ItemPointerData tid;		/* of the row; a hint */
	bool		in_heap;
	bool		hears;			/* schedule_hears() */
	uint8		status;			/* ScheduleStatus */
	bool		paused_by_jobq;
	bool		deferred;		/* its turn met a lock or an error, or goes on */
	uint8		tries;			/* of such turns in a row */
	TimestampTz due;			/* of its next turn; DT_NOEND: not by time */
	TimestampTz tick;			/* the same without a deferral */
	TimestampTz missed_until;	/* see TickTurn; of a turn that goes on */
	pairingheap_node node;
} ScheduleEntry;

typedef struct EntryCounts
{
	int			all;
	int			active;
	int			paused_by_jobq;
	int			hearing;
	int			deferred;
	TimestampTz late_since;		/* the earliest tick of deferred ones, while
								 * there are some */
} EntryCounts;

extern EntryCounts entry_counts;

extern void entries_init(MemoryContext context);
extern void entries_clear(void);
/* Returns the entry; NULL: there is none. */
extern ScheduleEntry *entry_find(int32 id);
/* Makes or changes the entry of a row that was just read or written. */
extern void entry_set(Schedule *s);
extern void entry_remove(int32 id);
/* Puts its turn off: the longer the more often it was. */
extern void entry_defer(int32 id, bool hopeless);
/*
 * Puts the turn of a schedule that has more ticks behind all that are due now;
 * missed_until is for that turn.
 */
extern void entry_go_on(int32 id, TimestampTz missed_until);
/* Returns the first time at which an entry is due; DT_NOEND: none. */
extern TimestampTz entries_due(void);
/* Returns the earliest tick without a decision; DT_NOEND: none is known. */
extern TimestampTz entries_tick(void);
/* Takes the first entry out of the heap if it is due; NULL: none is. */
extern ScheduleEntry *entries_take(TimestampTz now);
/* Fills ids with those of all entries that hear; returns a palloc'd array. */
extern int32 *entries_that_hear(int *n);

#endif
