/*
 * main.c
 *	  jobq-helper: starts tools for jobq's exec worker, watches them, and
 *	  leaves no process and no file of theirs.
 *
 * The exec worker starts it by posix_spawn with one end of a socketpair as
 * descriptor 3 (PROTOCOL.md). Only the exec worker sends frames to it.  It
 * links nothing of the server and has one thread, since the parent-death
 * signal belongs to a thread.  It lives as long as the socket is open: when
 * the worker or the whole server is gone, it kills all tools and exits.
 *
 * Signals: all are blocked.  SIGCHLD and SIGTERM are read from a signalfd.
 * SIGTERM, which is also the parent-death signal, means that the worker is
 * gone.  One thread with one loop: it never forks with a lock held or memory
 * half-written.
 *
 * It exits with 0 or 1 only: the postmaster takes any other exit code of an
 * orphan for a crash.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"

#ifndef JOBQ_HELPER_VERSION
#define JOBQ_HELPER_VERSION "0.2.0"
#endif

/* Returns the value of the option; NULL: the argument is another option. */
static const char *
value_of(const char *argument, const char *option)
{
	size_t		len = strlen(option);

	return strncmp(argument, option, len) == 0 ? argument + len : NULL;
}

static bool
parse_arguments(Helper *h, int argc, char **argv, long *parent_pid)
{
	int			i;

	for (i = 1; i < argc; i++)
	{
		const char *pid = value_of(argv[i], "--parent-pid=");
		const char *cgroup = value_of(argv[i], "--cgroup=");
		char	   *end;

		if (cgroup && *cgroup == '/')
			h->cgroup_named = cgroup;
		else if (!pid || (*parent_pid = strtol(pid, &end, 10)) <= 0 || *end != '\0')
			return false;
	}
	return true;
}

int
main(int argc, char **argv)
{
	static Helper helper;
	long		parent_pid = 0;

	if (argc == 2 && strcmp(argv[1], "--version") == 0)
	{
		puts("jobq-helper " JOBQ_HELPER_VERSION);
		return 0;
	}
	if (!parse_arguments(&helper, argc, argv, &parent_pid))
	{
		log_line("usage: jobq-helper --parent-pid=PID [--cgroup=DIRECTORY], with a socket as descriptor 3");
		return 1;
	}
	if (!setup_process(&helper, parent_pid))
		return 1;
	return supervise(&helper);
}
