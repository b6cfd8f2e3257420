/*
 * test_launch.c
 *	  Abandoned starters, and the tool that one may clone just before its end.
 *
 * No test of the whole helper can make a starter clone just after KILL was
 * sent, so this test includes launch.c.
 */
#include <sched.h>
#include <sys/prctl.h>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static int	go = -1;			/* the starter clones when this is closed */
static volatile pid_t *told;	/* the tool's pid after that */
static pid_t tool = 0;
static bool go_at_a_look = false;	/* close it at the next waitpid, which
									 * then waits for the starter */

static pid_t
look(pid_t pid, int *status, int options)
{
	siginfo_t	info;

	if (go_at_a_look)
	{
		go_at_a_look = false;
		close(go);
		waitid(P_PID, (id_t) pid, &info, WEXITED | WNOWAIT | __WALL);
		tool = *told;
	}
	return waitpid(pid, status, options);
}

#define waitpid look
#include "launch.c"
#undef waitpid

/*
 * Makes a starter that was abandoned before its clone.  After the clone it
 * ends or stays.
 */
static Starter *
begin_starter(Helper *h, bool ends)
{
	Starter    *s = calloc(1, sizeof(Starter));
	int			pipe_ends[2];

	s->sock = -1;
	s->name = strdup("tool");
	s->result = mmap(NULL, sizeof(Launched), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pipe(pipe_ends) != 0)
		abort();
	s->pid = (pid_t) syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
	if (s->pid == 0)
	{
		char		byte;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pipe_ends[1]);
		if (read(pipe_ends[0], &byte, 1) != 0)
			_exit(1);
		tool = (pid_t) syscall(SYS_clone, CLONE_PARENT, NULL, NULL, NULL, NULL);
		if (tool == 0)
		{
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		s->result->pid = tool;
		while (!ends)
			pause();
		_exit(0);
	}
	close(pipe_ends[0]);
	go = pipe_ends[1];
	told = &s->result->pid;
	s->next = h->starters;
	h->starters = s;
	h->starters_abandoned = true;
	return s;
}

/* True if the tool is killed within a minute. */
static bool
is_killed(Helper *h)
{
	int			i;

	for (i = 0; i < 60000; i++)
	{
		siginfo_t	info = {0};

		launch_reap(h);
		if (waitid(P_PID, (id_t) tool, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 || info.si_pid == tool)
			return true;		/* true also if it was reaped */
		usleep(1000);
	}
	return false;
}

static bool
is_forgotten(Helper *h)
{
	int			i;

	for (i = 0; i < 60000 && h->starters; i++)
	{
		launch_reap(h);
		usleep(1000);
	}
	return h->starters == NULL && !h->starters_abandoned;
}

int
main(void)
{
	Helper		h;
	Starter    *s;

	memset(&h, 0, sizeof(h));
	s = begin_starter(&h, true);
	launch_reap(&h);
	CHECK(h.starters == s && h.starters_abandoned, "one that is still there is kept");
	go_at_a_look = true;
	launch_reap(&h);
	CHECK(is_killed(&h), "the last act of one that has ended is undone");
	CHECK(is_forgotten(&h), "and it is forgotten");

	s = begin_starter(&h, false);
	launch_reap(&h);
	close(go);
	while ((tool = *told) == 0)
		usleep(1000);
	CHECK(is_killed(&h), "so is the act of one that hangs");
	CHECK(h.starters == s, "which is kept");
	kill(s->pid, SIGKILL);
	CHECK(is_forgotten(&h), "until it is gone");
	return done();
}
