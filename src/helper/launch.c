/*
 * launch.c
 *	  fork and exec of a tool.
 *
 * Everything that needs memory or can fail for another reason than the tool's own is done before the
 * fork; the child makes system calls only.  A step that fails there is told through a pipe that
 * exec closes: end of file means that the tool runs, which a tool that exits 127 can't be mistaken for.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "helper.h"

#define ERROR_FD (FRAME_FD + 1)

typedef struct Plan
{
	const char *path;
	char	  **argv;
	char	  **env;
	int			dir;
	int			fds[4];			/* become 0-3 */
	int			error_fd;
	pid_t		parent;
	struct rlimit nofile;
	rlim_t		memory_max;		/* 0: none */
	rlim_t		tag;			/* 0: none */
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

static void
give_up(int fd)
{
	int			error = errno;

	if (write(fd, &error, sizeof(error)) != (ssize_t) sizeof(error))
		_exit(126);
	_exit(127);
}

/*
 * The pipes' ends are all above ERROR_FD's neighbours or equal to them: setup.c keeps 0-3 in use, so
 * none of them is overwritten before it has been copied.
 */
static void
place_descriptors(const Plan *plan)
{
	int			i;

	for (i = 0; i < 4; i++)
		if (dup2(plan->fds[i], i) < 0)
			give_up(plan->error_fd);
	if (plan->error_fd != ERROR_FD && dup3(plan->error_fd, ERROR_FD, O_CLOEXEC) < 0)
		give_up(plan->error_fd);
	close_from(ERROR_FD + 1);
}

static void
set_limit(int resource, rlim_t soft, rlim_t hard)
{
	struct rlimit limit;

	limit.rlim_cur = soft;
	limit.rlim_max = hard;
	if (setrlimit(resource, &limit) != 0)
		give_up(ERROR_FD);
}

static void
set_limits(const Plan *plan)
{
	struct rlimit own;

	set_limit(RLIMIT_CORE, 0, 0);
	set_limit(RLIMIT_NOFILE, plan->nofile.rlim_cur, plan->nofile.rlim_max);
	if (plan->memory_max && getrlimit(RLIMIT_AS, &own) == 0 && plan->memory_max < own.rlim_max)
		set_limit(RLIMIT_AS, plan->memory_max, plan->memory_max);
	if (plan->tag)
		set_limit(RLIMIT_RTTIME, plan->tag, plan->tag);
}

/*
 * First in line when memory runs out.  The file belongs to root as long as we are not dumpable;
 * exec makes a process dumpable anyway.  Where it is not permitted the tool runs all the same.
 */
static void
offer_to_oom_killer(void)
{
	int			fd;

	prctl(PR_SET_DUMPABLE, 1);
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, "500", 3) != 3)
		errno = 0;
	close(fd);
}

/* Without memory allocation: another job's bytes may be half-way through the allocator. */
static void
__attribute__((noreturn))
run_child(const Plan *plan)
{
	sigset_t	none;

	setsid();
	if (fchdir(plan->dir) != 0)
		give_up(plan->error_fd);
	place_descriptors(plan);
	umask(077);
	set_limits(plan);
	offer_to_oom_killer();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		give_up(ERROR_FD);
	if (getppid() != plan->parent)
		_exit(1);
	execve(plan->path, plan->argv, plan->env);
	give_up(ERROR_FD);
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
	if (!error)
		error = open_pipe(job, FD_EXEC, true, &plan->error_fd);
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

static int
fork_child(Job *job, const Plan *plan)
{
	pid_t		pid = fork();

	if (pid == 0)
		run_child(plan);
	if (pid < 0)
		return errno;
	job->pid = job->session = pid;
	return 0;
}

/* Directory, memory and pipes; then the fork. */
static int
prepare_and_fork(Helper *h, Job *job, const FrameStart *start, Plan *plan, const char **what)
{
	char		workdir[4096];
	int			error;

	*what = "could not make its work directory";
	plan->dir = workdir_make(h, job);
	if (plan->dir < 0)
		return errno != 0 ? errno : EACCES;
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
	*what = "could not fork";
	return fork_child(job, plan);
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
	plan.dir = plan.error_fd = -1;
	for (i = 0; i < 4; i++)
		plan.fds[i] = -1;
	plan.parent = h->pid;
	plan.memory_max = start->memory_max;
	plan.tag = job->tag;
	limit_nofile(h, start, &plan);
	error = prepare_and_fork(h, job, start, &plan, what);
	for (i = 0; i < 4; i++)
		if (plan.fds[i] >= 0)
			close(plan.fds[i]);
	if (plan.error_fd >= 0)
		close(plan.error_fd);
	if (plan.dir >= 0)
		close(plan.dir);
	free(plan.argv);
	free(plan.env);
	return error;
}
