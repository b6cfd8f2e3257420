/*
 * launch.c
 *	  Sends orders to start tools to starters (starter.c).
 *
 * A starter has one order at a time, and the job is JOB_STARTING until the
 * starter has answered.  An order that finds no idle starter creates another.
 * A few orders at once keep all CPUs busy: a starter that the kernel wakes at
 * exec often waits for the CPU of its tool, while the helper sleeps.  More
 * starters exist only when a file system does not answer.  When a start is
 * given up, its starter is killed and abandoned; KILL may fail.  Until the
 * starter is gone, no other start of that program is tried, so that hanging
 * starters can't pile up.
 *
 * Starters, and tools before exec, send no SIGCHLD and are no children for
 * waitid without __WALL. So "no child is left" stays the kernel's answer about
 * tools (Helper.childless). exec makes a tool an ordinary child.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

#define HANGS_US	UINT64_C(10000000)	/* a longer start blocks others of
										 * its program */

struct Starter
{
	Starter    *next;
	pid_t		pid;			/* 0: reaped */
	pid_t		tool;			/* abandoned with it, 0: none, or reaped */
	int			sock;			/* -1: abandoned */
	Launched   *result;
	char	   *name;			/* argv[0] of its order, NULL: idle */
	uint64_t	since;
};

/* ---- pipes ---- */

/* Makes a pipe; *theirs is the tool's end. we_read: the helper reads. */
static int
open_pipe(Job *job, JobFd which, bool we_read, int *theirs)
{
	int			ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		return errno;
	*theirs = ends[we_read];
	job->fd[which] = ends[!we_read];
	fcntl(job->fd[which], F_SETFL, O_NONBLOCK);
	return 0;
}

static int
open_pipes(Job *job, int *fds)
{
	int			error = open_pipe(job, FD_STDIN, false, &fds[0]);

	if (!error)
		error = open_pipe(job, FD_STDOUT, true, &fds[1]);
	if (!error)
		error = open_pipe(job, FD_STDERR, true, &fds[2]);
	if (!error)
		error = open_pipe(job, FD_NOTES, true, &fds[3]);
	return error;
}

/* ---- starters ---- */

/*
 * Sets the helper's oom_score_adj for a moment, so that a starter inherits it,
 * and its tools from the starter: the kernel shall kill tools first.  A
 * starter can't write the file, which belongs to root, as the helper is not
 * dumpable.  Without permission, tools run all the same.
 */
static void
set_oom_score(Helper *h, const char *score)
{
	if (h->oom_fd >= 0 && pwrite(h->oom_fd, score, strlen(score), 0) < 0)
		log_line("could not set oom_score_adj to %s: %s", score, strerror(errno));
}

/*
 * Creates a starter, a child that sends no signal to its parent.  The helper's
 * only thread is outside malloc and stdio here.
 */
static bool
make_starter(Helper *h, Starter *s)
{
	int			ends[2];

	s->result = mmap(NULL, sizeof(Launched), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->result == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
	{
		s->result = s->result == MAP_FAILED ? NULL : s->result;
		return false;
	}
	set_oom_score(h, "500");
	s->pid = (pid_t) syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
	if (s->pid == 0)
		run_starter(h, ends[1], s->result);
	set_oom_score(h, h->oom_score);
	close(ends[1]);
	s->sock = ends[0];
	return s->pid > 0;
}

static void
free_starter(Starter *s)
{
	if (s->sock >= 0)
		close(s->sock);
	if (s->result)
		munmap(s->result, sizeof(Launched));
	free(s->name);
	free(s);
}

void
launch_close(Helper *h)
{
	for (Starter *s = h->starters; s; s = s->next)
	{
		if (s->sock >= 0)
			close(s->sock);
		s->sock = -1;
	}
}

/* Returns an idle starter. NULL: errno. */
static Starter *
idle_starter(Helper *h)
{
	Starter    *s = h->starters;

	while (s && (s->name || s->sock < 0))
		s = s->next;
	if (s)
		return s;
	s = calloc(1, sizeof(Starter));
	if (!s)
		return NULL;
	s->sock = -1;
	if (!make_starter(h, s))
	{
		int			error = errno;

		free_starter(s);
		errno = error;
		return NULL;
	}
	s->next = h->starters;
	h->starters = s;
	return s;
}

/*
 * Abandons a starter: it gets no more orders.  An idle one exits by itself at
 * end of file.
 */
static void
abandon(Helper *h, Starter *s)
{
	if (s->name)
	{
		kill(s->pid, SIGKILL);
		s->tool = s->result->pid;
		if (s->tool > 0)
			kill(s->tool, SIGKILL);
		h->childless = false;	/* the tool may have run, and left children */
	}
	close(s->sock);
	s->sock = -1;
	h->starters_abandoned = true;
}

/* True if the child is gone. */
static bool
is_gone(pid_t pid)
{
	return pid == 0 || waitpid(pid, NULL, __WALL | WNOHANG) != 0;
}

/*
 * Frees abandoned starters that are gone, with the tool that each may still
 * have cloned.
 */
void
launch_reap(Helper *h)
{
	Starter   **link = &h->starters;

	h->starters_abandoned = false;
	while (*link)
	{
		Starter    *s = *link;

		if (s->sock < 0 && s->name && s->tool == 0 && s->result->pid > 0)
		{
			s->tool = s->result->pid;
			kill(s->tool, SIGKILL);
		}
		if (s->sock < 0 && s->pid != 0 && is_gone(s->pid))
		{
			s->pid = 0;
			/* cloned just before its end */
			if (s->name && s->tool == 0 && (s->tool = s->result->pid) > 0)
				kill(s->tool, SIGKILL);
		}
		if (s->sock < 0 && s->pid == 0 && is_gone(s->tool))
		{
			*link = s->next;
			free_starter(s);
			continue;
		}
		h->starters_abandoned |= s->sock < 0;
		link = &s->next;
	}
}

bool
launch_knows(const Helper *h, pid_t pid)
{
	const Starter *s;

	for (s = h->starters; s; s = s->next)
		if (s->sock >= 0 && (s->pid == pid || (s->name && s->result->pid == pid)))
			return true;
	return false;
}

static bool
hangs(const Helper *h, const char *name)
{
	uint64_t	now = now_us();
	const Starter *s;

	for (s = h->starters; s; s = s->next)
		if (s->name && strcmp(s->name, name) == 0 && now > after_us(s->since, HANGS_US))
			return true;
	return false;
}

/* ---- orders ---- */

static bool
send_order(const Starter *s, const Order *order, const FrameStart *start, const char *workdir, const int *fds)
{
	union
	{
		struct cmsghdr align;
		char		room[CMSG_SPACE(ORDER_FDS * sizeof(int))];
	}			control = {{0}};
	struct iovec parts[] = {
		{(void *) order, sizeof(*order)},
		{(void *) start->argv.data, order->argv_len},
		{(void *) start->env.data, order->env_len},
		{(void *) start->tool_path.data, order->tool_path_len},
		{(void *) workdir, order->workdir_len}
	};
	struct msghdr message = {0};
	struct cmsghdr *passed;
	size_t		size = (size_t) (fds[CGROUP_FD] < 0 ? CGROUP_FD : ORDER_FDS) * sizeof(int);

	message.msg_iov = parts;
	message.msg_iovlen = 5;
	message.msg_control = &control;
	message.msg_controllen = CMSG_SPACE(size);
	passed = CMSG_FIRSTHDR(&message);
	passed->cmsg_level = SOL_SOCKET;
	passed->cmsg_type = SCM_RIGHTS;
	passed->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(passed), fds, size);
	return sendmsg(s->sock, &message, MSG_NOSIGNAL) == (ssize_t) (sizeof(*order) + order_texts(order));
}

static void
limit_nofile(const Helper *h, const FrameStart *start, struct rlimit *nofile)
{
	*nofile = h->nofile;
	if (start->nofile == 0)
		return;
	if (nofile->rlim_max > start->nofile)
		nofile->rlim_max = start->nofile;
	nofile->rlim_cur = nofile->rlim_max;
}

static void
fill_order(const Helper *h, const Job *job, const FrameStart *start, const char *workdir, Order *order)
{
	memset(order, 0, sizeof(*order));
	order->parent = h->pid;
	limit_nofile(h, start, &order->nofile);
	order->memory_max = job->memory_max;
	order->cpu_seconds = start->cpu_seconds;
	order->tag = job->tag;
	order->argc = start->argv.count;
	order->argv_len = start->argv.len;
	order->envc = start->env.count;
	order->env_len = start->env.len;
	order->tool_path_len = start->tool_path.len;
	order->workdir_len = (uint32_t) strlen(workdir) + 1;
}

/*
 * Sends the order.  A starter that has died, by lack of memory for example, is
 * replaced once.
 */
static int
give_order(Helper *h, Job *job, const FrameStart *start, const int *fds, const char **what)
{
	char		workdir[4096];
	Order		order;
	int			attempt;

	snprintf(workdir, sizeof(workdir), "%s/%s/%s", h->base_path, h->run_name, job->dir);
	fill_order(h, job, start, workdir, &order);
	*what = "could not start a process";
	for (attempt = 0; attempt < 2; attempt++)
	{
		Starter    *s = idle_starter(h);

		if (!s)
			return errno;
		memset(s->result, 0, sizeof(Launched));
		s->name = strdup(start->argv.data);
		if (!s->name)
			return ENOMEM;
		s->since = now_us();
		job->starter = s;
		if (send_order(s, &order, start, workdir, fds))
			return 0;
		launch_give_up(h, job);
	}
	return EIO;
}

/*
 * Makes directory, cgroup and pipes, writes the first input, and sends the
 * order.
 */
static int
prepare_and_order(Helper *h, Job *job, const FrameStart *start, int *fds, const char **what)
{
	int			error;

	*what = "an earlier start of it hangs";
	if (hangs(h, start->argv.data))
		return EBUSY;
	*what = "could not make its work directory";
	if (!workdir_make(h, job))
		return errno != 0 ? errno : EACCES;
	fds[WORKDIR_FD] = job->dir_fd;
	*what = "could not make its cgroup";
	if (h->cgroup_fd >= 0 && (fds[CGROUP_FD] = cgroup_make(h, job)) < 0)
		return errno;
	*what = "could not make its pipes";
	error = open_pipes(job, fds);
	if (error)
		return error;
	job_write_stdin(job);
	return give_order(h, job, start, fds, what);
}

int
launch(Helper *h, Job *job, const FrameStart *start, const char **what)
{
	int			fds[ORDER_FDS] = {-1, -1, -1, -1, -1, -1};
	int			error;
	int			i;

	if (h->starters_abandoned)
		launch_reap(h);
	error = prepare_and_order(h, job, start, fds, what);
	for (i = 0; i < ORDER_FDS; i++)
		if (fds[i] >= 0 && i != WORKDIR_FD)
			close(fds[i]);
	return error;
}

/* ---- answers ---- */

int
launch_fd(const Job *job)
{
	return job->starter ? job->starter->sock : -1;
}

pid_t
launch_pid(const Job *job)
{
	return job->starter ? job->starter->result->pid : 0;
}

static void
make_idle(Helper *h, Starter *s)
{
	const Starter *other;
	int			idle = 0;

	free(s->name);
	s->name = NULL;
	for (other = h->starters; other; other = other->next)
		idle += !other->name && other->sock >= 0;
	if (idle > STARTS_AT_ONCE)
		abandon(h, s);
}

/*
 * Reads the answer.  The shared memory is complete once the byte has come; end
 * of file without it: the starter was killed.
 */
bool
launch_answer(Helper *h, Job *job, int wait_ms, LaunchResult *result)
{
	Starter    *s = job->starter;
	struct pollfd answer = {s->sock, POLLIN, 0};
	char		byte;

	if (poll(&answer, 1, wait_ms) != 1)
		return false;
	memset(result, 0, sizeof(*result));
	result->what = "could not start a process";
	if (read(s->sock, &byte, 1) != 1)
	{
		result->error = EIO;
		launch_give_up(h, job);
		return true;
	}
	result->error = s->result->error;
	if (!s->result->no_process)
		result->what = "";
	/* before exec it is such a child still, and ends at this moment */
	if (s->result->pid > 0 && waitpid(s->result->pid, NULL, __WCLONE) > 0 && result->error == 0)
	{
		result->error = EINTR;
		result->what = "killed before it ran";
	}
	result->missing = result->error == ENOENT && s->result->found == FOUND_PROGRAM;
	result->unnamed = s->result->found == FOUND_NOTHING;
	if (result->error == 0)
	{
		job->pid = job->session = s->result->pid;
		h->childless = false;
	}
	job->starter = NULL;
	make_idle(h, s);
	return true;
}

void
launch_give_up(Helper *h, Job *job)
{
	abandon(h, job->starter);
	job->starter = NULL;
}
