/*
 * spawn_rate.c
 *	  Measures starts of /bin/true per second: a bare posix_spawn loop, and
 *	  jobq-helper, each with the same number at once.  Also measures processor
 *	  time per start, with that of /bin/true: on a busy machine the rates mean
 *	  little.
 *	  spawn_rate HELPER [COUNT]
 */
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"

extern char **environ;

static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}

/*
 * Returns the processor time of this process and its reaped children, in
 * seconds.
 */
static double
cpu(void)
{
	static const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
	struct rusage usage;
	double		sum = 0;
	int			i;

	for (i = 0; i < 2; i++)
	{
		getrusage(whose[i], &usage);
		sum += (double) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
			(double) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	}
	return sum;
}

static double
bare_rate(int count, int at_once)
{
	char	   *argv[] = {"true", NULL};
	double		begin = now();
	int			running = 0;
	int			started = 0;
	pid_t		pid;

	while (started < count || running > 0)
	{
		if (started < count && running < at_once)
		{
			if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) != 0)
				exit(1);
			started++;
			running++;
		}
		else if (wait(NULL) > 0)
			running--;
	}
	return count / (now() - begin);
}

static int
start_helper(const char *path, pid_t *pid)
{
	int			ends[2];
	char		parent[64];
	char	   *argv[] = {"jobq-helper", parent, NULL};
	posix_spawn_file_actions_t actions;

	snprintf(parent, sizeof(parent), "--parent-pid=%d", (int) getpid());
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		exit(1);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], FRAME_FD);
	if (posix_spawn(pid, path, &actions, NULL, argv, environ) != 0)
		exit(1);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	return ends[0];
}

static void
queue_start(FrameBuf *out, uint64_t job)
{
	static const FrameList argv = {"/bin/true\0", 10, 1};
	static const FrameList env = {"PATH=/bin:/usr/bin\0LANG=C", 26, 2};
	Frame		frame = {0};

	frame.type = FRAME_START;
	frame.u.start.job = job;
	frame.u.start.argv = argv;
	frame.u.start.env = env;
	frame.u.start.stdin_data = frame_text("{}");
	frame.u.start.max_output = 1024 * 1024;
	frame.u.start.stderr_tail = FRAME_STDERR_TAIL;
	frame.u.start.nofile = 256;
	frame.u.start.timeout_us = 300000000;
	if (!frame_encode(out, &frame, FRAME_MAX_DEFAULT))
		exit(1);
}

static void
wait_for(int fd, FrameBuf *out)
{
	struct pollfd p = {fd, POLLIN, 0};

	if (frame_send(out, fd) == FRAME_IO_AGAIN)
		p.events |= POLLOUT;
	poll(&p, 1, -1);
}

static double
helper_rate(const char *path, int count, int at_once)
{
	pid_t		pid;
	int			fd = start_helper(path, &pid);
	FrameBuf	out = {0};
	FrameDecoder in;
	Frame		frame = {0};
	double		begin = 0;
	char		workdir[] = "/tmp/jobq-bench-XXXXXX";
	int			started = 0;
	int			ended = 0;

	if (!mkdtemp(workdir))
		exit(1);
	frame_decoder_init(&in, FRAME_MAX_DEFAULT);
	frame.type = FRAME_HELLO;
	frame.u.hello.workdir = frame_text(workdir);
	frame_encode(&out, &frame, FRAME_MAX_DEFAULT);
	while (ended < count)
	{
		while (begin > 0 && started < count && started - ended < at_once)
			queue_start(&out, (uint64_t) started++);
		wait_for(fd, &out);
		if (frame_recv(&in, fd) != FRAME_IO_DONE)
			continue;
		while (frame_decoder_next(&in, &frame) == FRAME_READY)
		{
			if (frame.type == FRAME_HELLO)
				begin = now();
			ended += frame.type == FRAME_EXIT;
		}
	}
	begin = count / (now() - begin);
	close(fd);
	waitpid(pid, NULL, 0);
	rmdir(workdir);
	frame_buf_free(&out);
	frame_decoder_free(&in);
	return begin;
}

int
main(int argc, char **argv)
{
	static const int widths[] = {1, 8, 50};
	int			count = argc > 2 ? atoi(argv[2]) : 3000;
	size_t		i;

	for (i = 0; argc > 1 && i < 3; i++)
	{
		double		t0 = cpu();
		double		bare = bare_rate(count, widths[i]);
		double		t1 = cpu();
		double		helper = helper_rate(argv[1], count, widths[i]);
		double		t2 = cpu();

		printf("%2d at once: posix_spawn %5.0f/s %4.0f us, jobq-helper %5.0f/s %4.0f us, ratio %.2f, of processor time %.2f\n",
			   widths[i], bare, (t1 - t0) / count * 1e6, helper, (t2 - t1) / count * 1e6, helper / bare, (t2 - t1) / (t1 - t0));
	}
	return argc > 1 ? 0 : 1;
}
