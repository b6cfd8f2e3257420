/*
 * main.c
 *	  jobq-web: jobq's HTTP API.
 *
 * One thread, one loop (loop.c): libmicrohttpd for HTTP (http.c), libpq
 * without waiting for PostgreSQL (link.c, pool.c).  It has no rights of its
 * own: each request runs as the role that has signed in, on a connection that
 * this role's password has opened.  It keeps no data but sessions, which end
 * with it.
 *
 * SIGTERM and SIGINT: no new connections; it ends when the requests have, or
 * after five seconds.  SIGPIPE is ignored.  systemd is told when it serves.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bulk.h"
#include "claim.h"
#include "conn.h"
#include "handle.h"
#include "link.h"
#include "loop.h"
#include "pool.h"
#include "route.h"
#include "session.h"
#include "stream.h"

#define LEAVE_MS		(5 * SECOND)
#define MAX_SECRETS		MAX_PERSONS
#define WANTED_FDS		4096

static uint64_t leave_by = NEVER;

/* Tells systemd about a change of state: NOTIFY_SOCKET. */
static void
notify_systemd(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t		len = path ? strlen(path) : 0;
	int			fd;

	if (len < 2 || len >= sizeof(address.sun_path))
		return;
	memcpy(address.sun_path, path, len);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *) &address,
			   (socklen_t) (offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		log_line("systemd could not be told");
	close(fd);
}

static uint64_t
look_at_end(uint64_t now)
{
	if (leave_by == NEVER)
		return NEVER;
	if (now >= leave_by || !conns_are_busy())
		loop_stop();
	return now + 50;
}

static Timer end_timer = {.at = NEVER, .due = look_at_end};

static void
signal_ready(Source *source, uint32_t events)
{
	struct signalfd_siginfo info;

	(void) events;
	if (read(source->fd, &info, sizeof(info)) != sizeof(info))
		return;
	notify_systemd("STOPPING=1");
	http_stop();
	claims_end();
	streams_end();
	leave_by = now_ms() + LEAVE_MS;
	timer_by(&end_timer, 0);
}

static bool
watch_signals(void)
{
	static Source source = {.ready = signal_ready};
	sigset_t	set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	source.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	loop_timer(&end_timer);
	return source.fd >= 0 && loop_watch(&source, EPOLLIN);
}

static void
raise_limits(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < WANTED_FDS)
	{
		files.rlim_cur = files.rlim_max < WANTED_FDS ? files.rlim_max : WANTED_FDS;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

int
main(int argc, char **argv)
{
	static Config config;

	if (!config_read(&config, argc, argv))
		return 1;
	if (config.what)
	{
		if (strcmp(config.what, "--help") == 0)
			config_help();
		else
			puts("jobq-web " JOBQ_WEB_VERSION);
		return 0;
	}
	if (!links_open(config.dsn))
		return 1;
	if (config.check)
	{
		puts("the settings are valid");
		return 0;
	}
	raise_limits();
	if (!loop_open() || !secrets_open(MAX_SECRETS) || !watch_signals())
		return 1;
	pool_open();
	sessions_open(stream_session_ended);
	streams_open();
	claims_open();
	bulks_open();
	handle_open(&config);
	if (!http_open(&config, handle_request))
		return 1;
	log_line("serves %s", config.origin);
	notify_systemd("READY=1");
	loop_run();
	return 0;
}
