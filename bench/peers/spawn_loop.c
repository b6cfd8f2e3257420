/*
 * spawn_loop.c
 *	  The cost of running a program without a queue: posix_spawn in a
 *	  loop, C children alive at once.
 *
 *	  spawn_loop --jobs N [--concurrency C] -- program args...
 *
 * The lower bound for every subject that runs programs: no queue, no pipes,
 * stdin from /dev/null, the caller's stdout and stderr.  A child that fails
 * ends the loop.
 */
#include "common.h"

#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

static void
spawn(char **argv, const posix_spawn_file_actions_t *actions)
{
	pid_t		pid;
	int			error = posix_spawnp(&pid, argv[0], actions, NULL, argv, environ);

	if (error != 0)
		die("%s: %s", argv[0], strerror(error));
}

static void
await_one(const char *program)
{
	int			status;

	if (waitpid(-1, &status, 0) < 0)
		die("waitpid: %m");
	if (status != 0)
		die("%s: wait status %d", program, status);
}

static void
spawn_all(char **argv, int64_t jobs, int64_t concurrency)
{
	posix_spawn_file_actions_t actions;
	int64_t		alive = 0;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	for (int64_t i = 0; i < jobs; i++)
	{
		if (alive == concurrency)
		{
			await_one(argv[0]);
			alive--;
		}
		spawn(argv, &actions);
		alive++;
	}
	for (; alive > 0; alive--)
		await_one(argv[0]);
	posix_spawn_file_actions_destroy(&actions);
}

int
main(int argc, char **argv)
{
	int64_t		jobs = 0;
	int64_t		concurrency = 1;
	const Option options[] = {{"jobs", OPT_COUNT, &jobs}, {"concurrency", OPT_COUNT, &concurrency}, {NULL}};
	int			program;
	double		started;

	set_program_name("spawn_loop");
	program = parse_options(argc, argv, 1, options);
	if (program >= argc || jobs < 1 || concurrency < 1)
		die("usage: spawn_loop --jobs N [--concurrency C] -- program args...");
	started = epoch_now();
	spawn_all(argv + program, jobs, concurrency);
	printf("{\"jobs\": %" PRId64 ", \"seconds\": %.6f, \"cpu\": %.6f}\n", jobs, epoch_now() - started,
		   cpu_seconds(RUSAGE_SELF) + cpu_seconds(RUSAGE_CHILDREN));
	return 0;
}
