/*
 * cleaner.c
 *	  Removes work directories, in a child process: the cleaner.
 *
 * A tool may leave anything: links to /, unreadable directories, a million
 * files, nesting without end.  The cleaner follows no link, keeps two
 * directories open at once, and takes deep trees apart by moving their parts
 * to the top.
 *
 * The leftovers of dead helpers come first: their tools that still live (found
 * by their cgroup, JOBQ_WORKDIR in the environment, or the current directory),
 * then their directories, which no helper has locked.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "helper.h"

/* ---- removing ---- */

/* Opens a directory to empty it, and adds missing permissions first. */
static int
open_to_empty(int parent, const char *name)
{
	int			fd = openat(parent, name, DIR_FLAGS);
	char		path[64];
	int			handle;

	if (fd >= 0 && fchmod(fd, 0700) == 0)
		return fd;
	if (fd >= 0 || errno != EACCES)
		return fd;
	handle = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (handle < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", handle);
	if (chmod(path, 0700) == 0)
		fd = openat(parent, name, DIR_FLAGS);
	close(handle);
	return fd;
}

/* Moves a directory to top. Moving needs the right to write in it. */
static bool
move_up(int from, const char *name, int top, uint64_t number)
{
	char		fresh[64];
	int			fd = open_to_empty(from, name);

	if (fd < 0)
		return false;
	close(fd);
	snprintf(fresh, sizeof(fresh), ".jobq-%d-%llu", (int) getpid(), (unsigned long long) number);
	return renameat(from, name, top, fresh) == 0;
}

/*
 * Removes all files in dir, and its empty directories.  Other directories are
 * moved to top (top < 0: left, as dir is the top). Returns the number of
 * directories that stay in dir, -1: an error.
 */
static int
empty_directory(int dir, int top, uint64_t *moved)
{
	int			copy = dup(dir);
	DIR		   *list = copy >= 0 ? fdopendir(copy) : NULL;
	struct dirent *entry;
	int			directories = 0;

	if (!list)
	{
		if (copy >= 0)
			close(copy);
		return -1;
	}
	rewinddir(list);
	while ((entry = readdir(list)) != NULL)
	{
		if (is_dots(entry->d_name) || unlinkat(dir, entry->d_name, 0) == 0 ||
			unlinkat(dir, entry->d_name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			continue;
		if (top < 0 || !move_up(dir, entry->d_name, top, (*moved)++))
			directories++;
	}
	closedir(list);
	return directories;
}

/*
 * Empties each directory in top, moving its directories up to top.  Returns
 * false if nothing more could be removed.
 */
static bool
flatten_once(int top, uint64_t *moved)
{
	DIR		   *list = fdopendir(dup(top));
	struct dirent *entry;
	bool		progress = false;

	if (!list)
		return false;
	rewinddir(list);
	while ((entry = readdir(list)) != NULL)
	{
		int			dir;

		if (is_dots(entry->d_name))
			continue;
		dir = open_to_empty(top, entry->d_name);
		if (dir < 0)
			continue;
		empty_directory(dir, top, moved);
		close(dir);
		progress |= unlinkat(top, entry->d_name, AT_REMOVEDIR) == 0;
	}
	closedir(list);
	return progress;
}

bool
remove_tree(int parent, const char *name)
{
	uint64_t	moved = 0;
	int			top = open_to_empty(parent, name);

	if (top < 0)
		return errno == ENOENT;
	while (empty_directory(top, -1, &moved) != 0)
		if (!flatten_once(top, &moved))
			break;
	close(top);
	return unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

static void
remove_matching(int parent, const char *prefix)
{
	DIR		   *list = fdopendir(dup(parent));
	struct dirent *entry;

	if (!list)
		return;
	rewinddir(list);
	while ((entry = readdir(list)) != NULL)
	{
		char		stuck[300];

		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || remove_tree(parent, entry->d_name))
			continue;
		log_line("could not remove work directory \"%s\"", entry->d_name);
		snprintf(stuck, sizeof(stuck), "stuck-%s", entry->d_name);
		/* removed with this helper's leftovers */
		renameat(parent, entry->d_name, parent, stuck);
	}
	closedir(list);
}

/* ---- leftovers of dead helpers ---- */

#define MAX_ENVIRON (6 * 1024 * 1024)	/* the kernel's limit for exec */

/* True if a variable in the environment of a process begins with setting. */
static bool
environment_names(pid_t pid, const char *setting)
{
	char		path[64];
	char		buf[65536];
	size_t		len = strlen(setting);
	size_t		matched = 0;
	bool		differs = false;
	ssize_t		total = 0;
	ssize_t		got;
	int			fd;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int) pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	while (matched < len && total < MAX_ENVIRON && (got = read(fd, buf, sizeof(buf))) > 0)
	{
		for (ssize_t i = 0; i < got && matched < len; i++)
		{
			differs = buf[i] != '\0' && (differs || buf[i] != setting[matched]);
			matched = differs || buf[i] == '\0' ? 0 : matched + 1;
		}
		total += got;
	}
	close(fd);
	return matched == len;
}

static bool
lives_in(pid_t pid, const char *directory)
{
	char		path[64];
	char		cwd[PATH_MAX];
	ssize_t		n;

	snprintf(path, sizeof(path), "/proc/%d/cwd", (int) pid);
	n = readlink(path, cwd, sizeof(cwd) - 1);
	if (n <= 0)
		return false;
	cwd[n] = '\0';
	return strncmp(cwd, directory, strlen(directory)) == 0;
}

/*
 * Kills a process of a dead helper.  Opens the pidfd before the check, so that
 * the signal reaches the process that was checked.
 */
static void
kill_if_left(pid_t pid, const char *setting)
{
	int			handle = (int) syscall(SYS_pidfd_open, pid, 0);

	if (handle < 0)
		return;
	if (environment_names(pid, setting) || lives_in(pid, strchr(setting, '=') + 1))
		syscall(SYS_pidfd_send_signal, handle, SIGKILL, NULL, 0);
	close(handle);
}

void
kill_leftovers(const Helper *h, const char *run)
{
	char		setting[PATH_MAX + 64];
	DIR		   *proc = opendir("/proc");
	struct dirent *entry;

	if (!proc)
		return;
	snprintf(setting, sizeof(setting), "JOBQ_WORKDIR=%s/%s/", h->base_path, run);
	while ((entry = readdir(proc)) != NULL)
	{
		pid_t		pid = isdigit((unsigned char) entry->d_name[0]) ? atoi(entry->d_name) : 0;

		if (pid > 1 && pid != getpid())
			kill_if_left(pid, setting);
	}
	closedir(proc);
}

static void
sweep_dead_helpers(Helper *h)
{
	DIR		   *list = fdopendir(dup(h->base_fd));
	struct dirent *entry;

	if (!list)
		return;
	rewinddir(list);
	while ((entry = readdir(list)) != NULL)
	{
		int			dir;

		if (strncmp(entry->d_name, "run-", 4) != 0 || strcmp(entry->d_name, h->run_name) == 0)
			continue;
		dir = openat(h->base_fd, entry->d_name, DIR_FLAGS);
		if (dir < 0)
			continue;
		if (flock(dir, LOCK_EX | LOCK_NB) == 0)
		{
			kill_leftovers(h, entry->d_name);
			remove_tree(h->base_fd, entry->d_name);
		}
		close(dir);
	}
	closedir(list);
}

/* ---- the cleaner ---- */

/*
 * Closes the helper's ends of pipes and sockets: a tool must see the end of
 * its input when the helper closes it, not when the cleaner ends.
 */
static void
close_inherited(Helper *h)
{
	close(h->sock);
	for (int i = 0; i < h->njobs; i++)
	{
		for (int fd = 0; fd < JOB_PIPES; fd++)
			job_close_fd(h->jobs[i], fd);
	}
	launch_close(h);
}

void
run_cleaner(Helper *h, bool first)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != h->pid)
		_exit(1);
	close_inherited(h);
	if (first)
	{
		cgroup_sweep(h);
		sweep_dead_helpers(h);
	}
	remove_matching(h->run_fd, "trash-");
	_exit(0);
}
