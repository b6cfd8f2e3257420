/*
 * launch.c
 *	  clone and exec of a tool.
 *
 * The child shares our memory until it executes the tool, and we stand still as long (as with vfork):
 * copying the page tables of a process and then the pages it touches costs more than all the rest of a
 * start.  So the child makes system calls only, on a stack of its own, and writes nothing but plan->error:
 * a step that failed.  All signals are blocked and none has a handler here, the child unblocks them last.
 * Nothing that belongs to memory may be changed on its behalf, PR_SET_DUMPABLE above all: a tool
 * of another job could look into ours meanwhile.
 *
 * Everything that needs memory or can fail for another reason than the tool's own is done before.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper.h"

#define CHILD_STACK 65536

typedef struct Plan
{
	const char *path;
	char	  **argv;
	char	  **env;
	int			dir;
	int			fds[4];			/* become 0-3 */
	pid_t		parent;
	struct rlimit nofile;
	rlim_t		memory_max;		/* 0: none */
	rlim_t		cpu_seconds;	/* 0: none */
	rlim_t		tag;			/* 0: none */
	volatile int error;			/* errno of the child, 0: it runs the tool */
} Plan;

/* ---- the program ---- */

/* EPERM: another user could have put it there. */
static int
check_program(const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return errno;
	if (!S_ISREG(st.st_mode))
		return EACCES;
	if (access(path, X_OK) != 0)
		return errno;
	return check_trust(path, geteuid(), getegid());
}

/* Looks in each absolute directory of the list; EACCES or EPERM when only files were found that can't be run. */
static int
search_program(const char *name, FrameText tool_path, char **path)
{
	const char *at = tool_path.data;
	const char *end = at + tool_path.len;
	int			result = ENOENT;

	while (tool_path.len > 0 && at < end)
	{
		const char *colon = memchr(at, ':', (size_t) (end - at));
		int			len = (int) ((colon ? colon : end) - at);
		int			error = ENOENT;

		if (len > 0 && *at == '/')
		{
			if (asprintf(path, "%.*s/%s", len, at, name) < 0)
				return ENOMEM;
			error = check_program(*path);
			if (error == 0)
				return 0;
			free(*path);
		}
		if (error == EACCES || error == EPERM)
			result = error;
		at += len + 1;
	}
	return result;
}

int
find_program(const char *name, FrameText tool_path, char **path)
{
	bool		plain = name[0] != '\0' && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
	int			result = EINVAL;

	*path = NULL;
	if (plain)
		result = search_program(name, tool_path, path);
	if (result != 0)
		*path = NULL;
	if (name[0] == '/')
	{
		*path = strdup(name);
		result = *path ? check_program(*path) : ENOMEM;
	}
	return result;
}

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

/* The worker's list with our three at the end; they are one block of memory with the pointers. */
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

	if (!set_limit(RLIMIT_NOFILE, plan->nofile.rlim_cur, plan->nofile.rlim_max))
		return false;
	if (plan->memory_max && getrlimit(RLIMIT_AS, &own) == 0 && plan->memory_max < own.rlim_max &&
		!set_limit(RLIMIT_AS, plan->memory_max, plan->memory_max))
		return false;
	/* XCPU, and KILL if it goes on */
	if (plan->cpu_seconds && getrlimit(RLIMIT_CPU, &own) == 0 && plan->cpu_seconds < own.rlim_max &&
		!set_limit(RLIMIT_CPU, plan->cpu_seconds, plan->cpu_seconds + 1))
		return false;
	return plan->tag == 0 || set_limit(RLIMIT_RTTIME, plan->tag, plan->tag);
}

/*
 * The pipes' ends are all above 3: setup.c keeps 0-3 in use, so none of them is overwritten before it has
 * been copied.
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

/* The death signal last, then a look at who the parent is: it may have died before. */
static bool IN_CHILD
prepare_child(const Plan *plan)
{
	sigset_t	none;

	setsid();
	if (fchdir(plan->dir) != 0 || !place_descriptors(plan) || !set_limits(plan))
		return false;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		return false;
	if (getppid() != plan->parent)
		_exit(1);
	return true;
}

static int IN_CHILD
run_child(void *arg)
{
	Plan	   *plan = arg;

	if (prepare_child(plan))
		execve(plan->path, plan->argv, plan->env);
	plan->error = errno;
	_exit(127);
}

/* ---- the parent ---- */

/* Makes the pipe for one of our ends; *theirs is the tool's.  true for the ends that we read. */
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
open_pipes(Job *job, Plan *plan)
{
	int			error = open_pipe(job, FD_STDIN, false, &plan->fds[0]);

	if (!error)
		error = open_pipe(job, FD_STDOUT, true, &plan->fds[1]);
	if (!error)
		error = open_pipe(job, FD_STDERR, true, &plan->fds[2]);
	if (!error)
		error = open_pipe(job, FD_NOTES, true, &plan->fds[3]);
	return error;
}

static void
limit_nofile(const Helper *h, const FrameStart *start, Plan *plan)
{
	plan->nofile = h->nofile;
	if (start->nofile == 0)
		return;
	if (plan->nofile.rlim_max > start->nofile)
		plan->nofile.rlim_max = start->nofile;
	plan->nofile.rlim_cur = plan->nofile.rlim_max;
}

/*
 * Tools are to be killed first when memory runs out.  A child can't say so itself (the file belongs to root
 * as long as memory is ours), so it inherits it, while we stand still; where it is not permitted the tool
 * runs all the same.
 */
static void
set_oom_score(Helper *h, const char *score)
{
	if (h->oom_fd >= 0 && pwrite(h->oom_fd, score, strlen(score), 0) < 0)
		complain("could not set oom_score_adj to %s: %s", score, strerror(errno));
}

/* The child that could not execute the tool is reaped here. */
static int
start_child(Helper *h, Job *job, Plan *plan, const char **what)
{
	char		stack[CHILD_STACK] __attribute__((aligned(16)));
	pid_t		pid;
	int			error;

	set_oom_score(h, "500");
	pid = clone(run_child, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, plan);
	error = pid < 0 ? errno : plan->error;
	set_oom_score(h, h->oom_score);
	*what = pid < 0 ? "could not start a process" : "";
	if (pid < 0)
		return error;
	h->childless = false;
	if (error != 0)
		waitpid(pid, NULL, 0);
	else
		job->pid = job->session = pid;
	return error;
}

/* Directory, memory, pipes and what goes into the first; then the child. */
static int
prepare_and_start(Helper *h, Job *job, const FrameStart *start, Plan *plan, const char **what)
{
	char		workdir[4096];
	int			error;

	*what = "could not make its work directory";
	if (!workdir_make(h, job))
		return errno != 0 ? errno : EACCES;
	plan->dir = job->dir_fd;
	snprintf(workdir, sizeof(workdir), "%s/%s/%s", h->base_path, h->run_name, job->dir);
	*what = "out of memory";
	plan->argv = make_argv(&start->argv);
	plan->env = make_env(&start->env, workdir);
	if (!plan->argv || !plan->env)
		return ENOMEM;
	*what = "could not make its pipes";
	error = open_pipes(job, plan);
	if (error)
		return error;
	job_write_stdin(job);
	return start_child(h, job, plan, what);
}

int
launch(Helper *h, Job *job, const FrameStart *start, const char **what)
{
	Plan		plan = {0};
	int			error;
	int			i;

	*what = "";
	error = find_program(start->argv.data, start->tool_path, &job->program);
	if (error)
		return error;
	plan.path = job->program;
	plan.dir = -1;
	for (i = 0; i < 4; i++)
		plan.fds[i] = -1;
	plan.parent = h->pid;
	plan.memory_max = start->memory_max;
	plan.cpu_seconds = start->cpu_seconds;
	plan.tag = job->tag;
	limit_nofile(h, start, &plan);
	error = prepare_and_start(h, job, start, &plan, what);
	for (i = 0; i < 4; i++)
		if (plan.fds[i] >= 0)
			close(plan.fds[i]);
	free(plan.argv);
	free(plan.env);
	return error;
}
