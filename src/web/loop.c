/*
 * loop.c
 *	  The event loop: one thread, one epoll descriptor.
 *
 * A turn calls the timers that are due, then the functions of
 * loop_after_turn(), which run libmicrohttpd, then handles events.  A source may
 * go away in the same turn in which an event names it: loop_unwatch() clears
 * its function, and loop_free() keeps its memory until the turn is over.
 */
#include "loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"

#define EVENTS_A_TURN	256
#define MAX_AFTER		4
#define MAX_WAIT_MS		3600000

static int	epoll_fd = -1;
static bool stopping = false;
static Timer *timers = NULL;
static int	(*after[MAX_AFTER]) (void);
static int	nafter = 0;
static void **buried = NULL;
static size_t nburied = 0;

bool
loop_open(void)
{
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return epoll_fd >= 0;
}

bool
loop_watch(Source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, source->fd, &event) == 0)
		return true;
	if (errno == ENOENT && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, source->fd, &event) == 0)
		return true;
	log_line("epoll: %s", strerror(errno));
	return false;
}

void
loop_unwatch(Source *source)
{
	source->ready = NULL;
	if (source->fd >= 0)
		epoll_ctl(epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
}

void
loop_free(void *p)
{
	buried = mem_grow(buried, (nburied + 1) * sizeof(void *));
	buried[nburied++] = p;
}

static void
free_buried(void)
{
	while (nburied > 0)
		free(buried[--nburied]);
}

void
loop_timer(Timer *timer)
{
	timer->next = timers;
	timers = timer;
}

void
timer_by(Timer *timer, uint64_t at)
{
	if (at < timer->at)
		timer->at = at;
}

void
loop_after_turn(int (*f) (void))
{
	if (nafter < MAX_AFTER)
		after[nafter++] = f;
}

static void
call_timers(void)
{
	uint64_t	now = now_ms();
	Timer	   *timer;

	for (timer = timers; timer; timer = timer->next)
	{
		if (timer->at <= now)
		{
			timer->at = NEVER;
			timer_by(timer, timer->due(now));
		}
	}
}

/* Returns the milliseconds until the next timer, -1: none. */
static int
next_timer(void)
{
	uint64_t	now = now_ms();
	uint64_t	next = NEVER;
	const Timer *timer;

	for (timer = timers; timer; timer = timer->next)
		next = timer->at < next ? timer->at : next;
	if (next == NEVER)
		return -1;
	if (next <= now)
		return 0;
	return next - now > MAX_WAIT_MS ? MAX_WAIT_MS : (int) (next - now);
}

static int
sooner(int a, int b)
{
	if (a < 0 || b < 0)
		return a < 0 ? b : a;
	return a < b ? a : b;
}

void
loop_run(void)
{
	struct epoll_event events[EVENTS_A_TURN];

	while (!stopping)
	{
		int			wait = -1;
		int			n;
		int			i;

		call_timers();
		for (i = 0; i < nafter; i++)
			wait = sooner(wait, after[i] ());
		wait = sooner(wait, next_timer());
		n = epoll_wait(epoll_fd, events, EVENTS_A_TURN, wait);
		for (i = 0; i < n; i++)
		{
			Source	   *source = events[i].data.ptr;

			if (source->ready)
				source->ready(source, events[i].events);
		}
		free_buried();
	}
}

void
loop_stop(void)
{
	stopping = true;
}
