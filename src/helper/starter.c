/*
 * starter.c
 *	  A starter: finds, clones and executes tools, by orders of launch.c.
 *
 * A tool's path may lead to a file system that does not answer.  A process
 * that accesses it then blocks in the kernel, where KILL may fail.  So a child
 * of the helper does it.
 *
 * The tool's process shares the starter's memory until exec, and the starter
 * is suspended until then (as with vfork): copying page tables, and then the
 * pages that are touched, costs more than the rest of a start.  So the tool's
 * process makes only system calls, on its own stack, and writes only
 * result->error: a step that failed.  (Only clone3 leads into a cgroup, and
 * the C library does not offer it with a stack: there the process has a copy
 * of the memory.) All signals are blocked and none has a handler here; the
 * child unblocks them last.  It must change nothing that belongs to the
 * memory, PR_SET_DUMPABLE above all.
 *
 * CLONE_PARENT makes the tool the helper's own child: the helper is notified
 * of its end, and the helper's death ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "helper.h"
#include "launch.h"

#define CHILD_STACK 65536
#define STARTER_FD	3			/* the starter's end of the socket; an
								 * order's descriptors are above */

typedef struct Plan
{
	char	   *path;
	char	  **argv;
	char	  **env;
	int			fds[ORDER_FDS]; /* become 0-3 */
	Order		order;
	Launched   *result;
} Plan;

/* ---- argv and environment ---- */

static char **
make_argv(const FrameList *list)
{
	char	  **argv = calloc((size_t) list->count + 1, sizeof(char *));
	const char *item = NULL;
	size_t		n = 0;

	while (argv && (item = frame_list_next(list, item)) != NULL)
		argv[n++] = (char *) item;
	return argv;
}

static bool
names(const char *setting, const char *variable)
{
	size_t		len = strlen(variable);

	return strncmp(setting, variable, len) == 0 && setting[len] == '=';
}

/*
 * Builds the environment: the worker's list, then the three variables of the
 * helper.  They are one block of memory with the pointers.
 */
static char **
make_env(const FrameList *list, const char *workdir)
{
	static const char *const ours[] = {"JOBQ_WORKDIR", "TMPDIR", "HOME"};
	size_t		slots = (size_t) list->count + 4;
	size_t		step = strlen(workdir) + 16;
	char	  **env = calloc(1, slots * sizeof(char *) + 3 * step);
	char	   *at = env ? (char *) (env + slots) : NULL;
	const char *item = NULL;
	size_t		n = 0;
	int			i;

	while (env && (item = frame_list_next(list, item)) != NULL)
		if (!names(item, ours[0]) && !names(item, ours[1]) && !names(item, ours[2]))
			env[n++] = (char *) item;
	for (i = 0; env && i < 3; i++, at += step)
	{
		snprintf(at, step, "%s=%s", ours[i], workdir);
		env[n++] = at;
	}
	return env;
}

/* ---- the child ---- */

static bool IN_CHILD
set_limit(int resource, rlim_t soft, rlim_t hard)
{
	struct rlimit limit;

	limit.rlim_cur = soft;
	limit.rlim_max = hard;
	return setrlimit(resource, &limit) == 0;
}

static bool IN_CHILD
set_limits(const Plan *plan)
{
	struct rlimit own;

	if (!set_limit(RLIMIT_NOFILE, plan->order.nofile.rlim_cur, plan->order.nofile.rlim_max))
		return false;
	if (plan->order.memory_max && getrlimit(RLIMIT_AS, &own) == 0 && plan->order.memory_max < own.rlim_max &&
		!set_limit(RLIMIT_AS, plan->order.memory_max, plan->order.memory_max))
		return false;
	/* XCPU at the limit, KILL a second later */
	if (plan->order.cpu_seconds && getrlimit(RLIMIT_CPU, &own) == 0 &&
		plan->order.cpu_seconds < own.rlim_max &&
		!set_limit(RLIMIT_CPU, plan->order.cpu_seconds, plan->order.cpu_seconds + 1))
		return false;
	return plan->order.tag == 0 || set_limit(RLIMIT_RTTIME, plan->order.tag, plan->order.tag);
}

/*
 * Copies the descriptors to 0-3. All are above 3, so none is overwritten
 * before its copy.
 */
static bool IN_CHILD
place_descriptors(const Plan *plan)
{
	int			i;

	for (i = 0; i < 4; i++)
		if (dup2(plan->fds[i], i) < 0)
			return false;
	close_from(4);
	return true;
}

/*
 * Prepares the tool's process.  Arms the death signal last, then checks the
 * parent: it may have died before.
 */
static bool IN_CHILD
prepare_child(const Plan *plan)
{
	sigset_t	none;

	setsid();
	if (fchdir(plan->fds[WORKDIR_FD]) != 0 || !place_descriptors(plan) || !set_limits(plan))
		return false;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		return false;
	if (getppid() != plan->order.parent)
		_exit(1);
	return true;
}

static int IN_CHILD
run_child(void *arg)
{
	Plan	   *plan = arg;

	if (prepare_child(plan))
		execve(plan->path, plan->argv, plan->env);
	plan->result->error = errno;
	_exit(127);
}

/* ---- orders ---- */

static bool
read_whole(int fd, char *to, size_t len)
{
	while (len > 0)
	{
		ssize_t		got = read(fd, to, len);

		if (got <= 0)
			return false;
		to += got;
		len -= (size_t) got;
	}
	return true;
}

/*
 * Receives the fixed part and the descriptors, which come with its first byte.
 * false: no more orders.
 */
static bool
receive(Order *order, int *fds)
{
	union
	{
		struct cmsghdr align;
		char		room[CMSG_SPACE(ORDER_FDS * sizeof(int))];
	}			control;
	struct iovec part = {order, sizeof(*order)};
	struct msghdr message = {0};
	struct cmsghdr *passed;

	message.msg_iov = &part;
	message.msg_iovlen = 1;
	message.msg_control = &control;
	message.msg_controllen = sizeof(control);
	if (recvmsg(STARTER_FD, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != (ssize_t) sizeof(*order))
		return false;
	passed = CMSG_FIRSTHDR(&message);
	if (!passed)
		return false;
	fds[CGROUP_FD] = -1;
	memcpy(fds, CMSG_DATA(passed), passed->cmsg_len - CMSG_LEN(0));
	return true;
}

static pid_t
clone_child(Plan *plan)
{
	char		stack[CHILD_STACK] __attribute__((aligned(16)));
	pid_t		pid;

	if (plan->fds[CGROUP_FD] < 0)
		return clone(run_child, stack + CHILD_STACK,
					 CLONE_VM | CLONE_VFORK | CLONE_PARENT | CLONE_PARENT_SETTID, plan, &plan->result->pid);
	pid = cgroup_clone(plan->fds[CGROUP_FD], CLONE_VFORK | CLONE_PARENT, &plan->result->pid);
	if (pid == 0)
		run_child(plan);
	return pid;
}

/* Starts the tool, or sets the error in the result. texts follow the order. */
static void
start_tool(Plan *plan, const char *texts)
{
	Launched   *result = plan->result;
	const Order *order = &plan->order;
	FrameList	argv = {texts, order->argv_len, order->argc};
	FrameList	env = {argv.data + argv.len, order->env_len, order->envc};
	FrameText	tool_path = {env.data + env.len, order->tool_path_len};
	const char *workdir = tool_path.data + tool_path.len;

	result->error = find_program(argv.data, tool_path, &plan->path);
	result->found = plan->path ? (access(plan->path, X_OK) == 0 ? FOUND_PROGRAM : FOUND_PATH) : FOUND_NOTHING;
	if (result->error != 0)
		return;
	result->error = ENOMEM;
	plan->argv = make_argv(&argv);
	plan->env = make_env(&env, workdir);
	if (!plan->argv || !plan->env)
		return;
	result->error = 0;
	if (clone_child(plan) < 0)
	{
		result->error = errno;
		result->no_process = true;
	}
}

static bool
follow_order(Launched *result)
{
	Plan		plan = {.result = result};
	char	   *texts;
	size_t		len;

	if (!receive(&plan.order, plan.fds))
		return false;
	len = order_texts(&plan.order);
	texts = malloc(len);
	if (!texts || !read_whole(STARTER_FD, texts, len))
		return false;
	start_tool(&plan, texts);
	close_from(STARTER_FD + 1);
	free(plan.path);
	free(plan.argv);
	free(plan.env);
	free(texts);
	return write(STARTER_FD, "", 1) == 1;
}

/*
 * Runs the starter.  It closes the helper's descriptors: a tool that hangs
 * would keep pipes of other tools open.
 */
void
run_starter(const Helper *h, int sock, Launched *result)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != h->pid || dup2(sock, STARTER_FD) < 0)
		_exit(1);
	close_from(STARTER_FD + 1);
	while (follow_order(result))
		;
	_exit(0);
}
