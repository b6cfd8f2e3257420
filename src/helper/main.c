/*
 * main.c
 *	  jobq-helper: starts tools for jobq's exec worker, watches them, and leaves nothing behind.
 *
 * The exec worker starts it by posix_spawn with one end of a socketpair as descriptor 3 (PROTOCOL.md)
 * and is the only one who talks to it.  It links nothing of the server and has one thread (the
 * parent-death signal belongs to a thread).  It lives as long as the socket is open: when the worker,
 * or the whole server, is gone, it kills every tool and leaves.
 *
 * Signals: all are blocked; SIGCHLD and SIGTERM are read from a signalfd (SIGTERM, which is also the
 * parent-death signal, means "the worker is gone").  It never forks with a lock held or memory
 * half-written: there is one thread and one loop.
 *
 * It exits 0 or 1 only: the postmaster takes anything else from an orphan of its own for a crash.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"

#ifndef JOBQ_HELPER_VERSION
#define JOBQ_HELPER_VERSION "0.1.0"
#endif

static bool
parse_arguments(int argc, char **argv, long *parent_pid)
{
	static const char option[] = "--parent-pid=";
	int			i;

	for (i = 1; i < argc; i++)
	{
		char	   *end;

		if (strncmp(argv[i], option, sizeof(option) - 1) != 0)
			return false;
		*parent_pid = strtol(argv[i] + sizeof(option) - 1, &end, 10);
		if (*end != '\0' || *parent_pid <= 0)
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
	if (!parse_arguments(argc, argv, &parent_pid))
	{
		complain("usage: jobq-helper --parent-pid=PID, with a socket as descriptor 3");
		return 1;
	}
	if (!setup_process(&helper, parent_pid))
		return 1;
	return supervise(&helper);
}
