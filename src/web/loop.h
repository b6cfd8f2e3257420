/*
 * loop.h
 *	  The event loop: one thread, one epoll descriptor.
 *
 * A Source is a descriptor with a function that is called when it is ready; it
 * is part of a larger structure of its owner.  A Timer is a function that is
 * called at a time, and says when it wants to be called again.
 */
#ifndef JOBQ_WEB_LOOP_H
#define JOBQ_WEB_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

typedef struct Source Source;
struct Source
{
	int			fd;
	void		(*ready) (Source *source, uint32_t events); /* NULL: not watched */
};

typedef struct Timer Timer;
struct Timer
{
	uint64_t	at;				/* milliseconds of now_ms() */
	uint64_t	(*due) (uint64_t now);	/* returns the next time, or NEVER */
	Timer	   *next;
};

extern bool loop_open(void);
/* Watches the descriptor for these events from now on, instead of others. */
extern bool loop_watch(Source *source, uint32_t events);
extern void loop_unwatch(Source *source);
/* Frees memory that holds sources when no event of this turn can name it. */
extern void loop_free(void *p);
extern void loop_timer(Timer *timer);
/* Calls the timer at that time or earlier. */
extern void timer_by(Timer *timer, uint64_t at);
/* Calls f after each turn; it returns the milliseconds to wait at most, -1: any time. */
extern void loop_after_turn(int (*f) (void));
/* Runs until loop_stop(). */
extern void loop_run(void);
extern void loop_stop(void);

#endif
