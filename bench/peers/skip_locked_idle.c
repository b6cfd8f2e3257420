/*
 * skip_locked_idle.c
 *	  The idle hand-written worker: sleeps until a notification, a poll or the stop.
 */
#include "skip_locked.h"

#include <poll.h>
#include <sys/eventfd.h>

#define DRAIN_EVERY		256		/* claims of a busy worker between looks at the listening socket */

static int	stop_fd;			/* readable from the stop on */
static int	wake_fd;
static PGconn *listener;
static pthread_mutex_t watch = PTHREAD_MUTEX_INITIALIZER;

void
idle_init(void)
{
	stop_fd = eventfd(0, EFD_NONBLOCK);
	wake_fd = eventfd(0, EFD_NONBLOCK);
	if (!listening)
		return;
	listener = connect_or_die();
	execute(listener, "LISTEN sl_job");
}

/* Also called by a signal. */
void
stop(int signal_number)
{
	(void) signal_number;
	stopping = true;
	eventfd_write(stop_fd, 1);
}

static void
drain_notifications(void)
{
	PGnotify   *notification;

	if (!PQconsumeInput(listener))
		die("%s", PQerrorMessage(listener));
	while ((notification = PQnotifies(listener)) != NULL)
		PQfreemem(notification);
}

static void
sleep_until_woken(void)
{
	struct pollfd fds[] = {{stop_fd, POLLIN, 0}, {wake_fd, POLLIN, 0}, {PQsocket(listener), POLLIN, 0}};
	eventfd_t	ignored;

	pthread_mutex_lock(&watch);
	poll(fds, 3, poll_ms);
	if (fds[1].revents != 0)
		eventfd_read(wake_fd, &ignored);
	if (fds[2].revents != 0)
		drain_notifications();
	pthread_mutex_unlock(&watch);
}

void
sleep_for_jobs(Worker *w)
{
	struct pollfd fd = {stop_fd, POLLIN, 0};

	if (listening)
		sleep_until_woken();
	else
		poll(&fd, 1, poll_ms);
	w->was_idle = true;
}

/* With a claim in hand. */
void
tend_listener(Worker *w)
{
	if (w->was_idle && w->jobs == batch && concurrency > 1)
		eventfd_write(wake_fd, 1);
	w->was_idle = false;
	if (++w->claims % DRAIN_EVERY == 0 && pthread_mutex_trylock(&watch) == 0)
	{
		drain_notifications();
		pthread_mutex_unlock(&watch);
	}
}
