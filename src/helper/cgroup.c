/*
 * cgroup.c
 *	  Tools in cgroups (version 2), where a part of that hierarchy is ours.
 *
 *	 <base>/						the server's unit, delegated to it by systemd, or what jobq.tool_cgroup names
 *	 <base>/<server>-run-<pid>-<n>/	one helper's; it holds a lock on it, so that an unlocked one is a dead one's
 *	 <base>/.../<n>/				one tool's
 *
 * A tool is born in its cgroup (writing to cgroup.procs instead would stop all forks of the machine for a moment), so
 * its memory.max is for all that it starts, and one write to cgroup.kill ends that, however fast it forks.
 * A cgroup has either processes or controllers for those below it: the server must be in one beside ours.
 *
 * Whether it can be done is not judged from owners and modes, but by doing it, with one that nobody needs.
 * Without the memory controller the kill is still of use, and memory_max is RLIMIT_AS as everywhere else.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "helper.h"

#define MAX_NESTED	16			/* cgroups that a tool has made in its own */
#define SWEEP_TURNS 500			/* of 10 ms */

static bool
set_value(int dir, const char *file, const char *value)
{
	int			fd = openat(dir, file, O_WRONLY | O_CLOEXEC);
	bool		done = fd >= 0 && write(fd, value, strlen(value)) > 0;
	int			error = errno;

	if (fd >= 0)
		close(fd);
	errno = error;
	return done;
}

/* Of one of a job's files. */
static bool
set_job_value(const Helper *h, const Job *job, const char *file, const char *value)
{
	char		path[64];

	snprintf(path, sizeof(path), "%s/%s", job->cgroup, file);
	return set_value(h->cgroup_fd, path, value);
}

/* As fork, into that cgroup. */
pid_t
cgroup_clone(int cgroup, uint64_t flags, volatile pid_t *pid)
{
	struct clone_args args;

	memset(&args, 0, sizeof(args));
	args.flags = flags | CLONE_INTO_CGROUP | CLONE_PARENT_SETTID;
	args.parent_tid = (uintptr_t) pid;
	args.cgroup = (uint64_t) cgroup;
	return (pid_t) syscall(SYS_clone3, &args, sizeof(args));
}

/* With those below it.  false: a process is left in one. */
static bool
remove_cgroup(int parent, const char *name, int depth)
{
	int			dir;
	DIR		   *list;
	struct dirent *entry;

	if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return true;
	dir = depth < MAX_NESTED ? openat(parent, name, DIR_FLAGS) : -1;
	list = dir >= 0 ? fdopendir(dir) : NULL;
	if (!list)
	{
		if (dir >= 0)
			close(dir);
		return false;
	}
	while ((entry = readdir(list)) != NULL)
		if (entry->d_type == DT_DIR && !is_dots(entry->d_name))
			remove_cgroup(dir, entry->d_name, depth + 1);
	closedir(list);
	return unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

/* ---- the base ---- */

/* Of this process, in version 2 of the hierarchy. */
static bool
read_own_cgroup(char *own, size_t size)
{
	FILE	   *f = fopen("/proc/self/cgroup", "re");
	bool		found = false;

	while (f && !found && fgets(own, (int) size, f))
		found = strncmp(own, "0::/", 4) == 0;
	if (f)
		fclose(f);
	if (!found)
		return false;
	own[strcspn(own, "\n")] = '\0';
	memmove(own, own + 3, strlen(own + 3) + 1);
	return true;
}

/* Where a line of mountinfo shows the parent of that cgroup; false: not there. */
static bool
parent_in_mount(const char *line, const char *own, char *path, size_t size)
{
	char		root[PATH_MAX];
	char		point[PATH_MAX];
	size_t		len;
	const char *last = strrchr(own, '/');

	if (!strstr(line, " - cgroup2 ") || sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) != 2)
		return false;
	len = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (strncmp(own, root, len) != 0 || own[len] != '/' || own[len + 1] == '\0')
		return false;
	return snprintf(path, size, "%s%.*s", point, (int) (last - own - (ptrdiff_t) len), own + len) < (int) size;
}

static bool
find_parent(char *path, size_t size)
{
	char		own[PATH_MAX];
	char	   *line = NULL;
	size_t		room = 0;
	FILE	   *mounts = read_own_cgroup(own, sizeof(own)) ? fopen("/proc/self/mountinfo", "re") : NULL;
	bool		found = false;

	while (mounts && !found && getline(&line, &room, mounts) > 0)
		found = parent_in_mount(line, own, path, size);
	free(line);
	if (mounts)
		fclose(mounts);
	return found;
}

/* systemd marks what it leaves to a unit. */
static bool
is_delegated(int dir)
{
	char		value;

	return fgetxattr(dir, "user.delegate", &value, 1) == 1 && value == '1';
}

/* What is named, or else the parent of our cgroup when it is the server's. */
static bool
open_base(Helper *h, char *path, size_t size)
{
	struct statfs fs;

	if (h->cgroup_named)
		snprintf(path, size, "%s", h->cgroup_named);
	else if (!find_parent(path, size))
		return false;
	h->cgroup_base_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (h->cgroup_base_fd < 0 || fstatfs(h->cgroup_base_fd, &fs) != 0)
		return false;
	if (fs.f_type != CGROUP2_SUPER_MAGIC)
		errno = ENOTSUP;
	return fs.f_type == CGROUP2_SUPER_MAGIC && (h->cgroup_named || is_delegated(h->cgroup_base_fd));
}

/* ---- ours ---- */

/* The same for all helpers of a server: that of the directory below which tools have theirs. */
static const char *
server_name(const Helper *h)
{
	return strrchr(h->base_path, '/') + 1;
}

/* A sweeper may take a fresh one for a dead helper's, in the moment before it is locked: then another. */
static bool
make_own(Helper *h)
{
	int			attempt;

	for (attempt = 0; attempt < 100; attempt++)
	{
		struct stat st;

		if (h->cgroup_fd >= 0)
			close(h->cgroup_fd);
		snprintf(h->cgroup_name, sizeof(h->cgroup_name), "%s-run-%d-%llx", server_name(h),
				 (int) h->pid, (unsigned long long) now_us());
		if (mkdirat(h->cgroup_base_fd, h->cgroup_name, 0700) != 0)
		{
			h->cgroup_fd = -1;
			if (errno == EEXIST)
				continue;
			return false;
		}
		h->cgroup_fd = openat(h->cgroup_base_fd, h->cgroup_name, DIR_FLAGS);
		if (h->cgroup_fd >= 0 && flock(h->cgroup_fd, LOCK_EX | LOCK_NB) == 0 &&
			fstatat(h->cgroup_base_fd, h->cgroup_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			break;
	}
	h->cgroup_memory = set_value(h->cgroup_base_fd, "cgroup.subtree_control", "+memory") &&
		set_value(h->cgroup_fd, "cgroup.subtree_control", "+memory");
	if (!h->cgroup_memory)
		complain("no memory controller for cgroup \"%s\": %s", h->cgroup_name, strerror(errno));
	return attempt < 100;
}

/* A child that leaves at once: may we, and can the kernel? */
static bool
try_one(Helper *h)
{
	Job			probe = {.memory_max = 1 << 30};
	volatile pid_t pid;
	pid_t		child;
	int			fd = cgroup_make(h, &probe);

	if (fd < 0)
		return false;
	child = cgroup_clone(fd, 0, &pid);
	if (child == 0)
		_exit(0);
	close(fd);
	if (child < 0 || waitpid(child, NULL, __WALL) != child || !set_job_value(h, &probe, "cgroup.kill", "1"))
		return false;
	cgroup_drop(h, &probe);
	return true;
}

void
cgroup_open(Helper *h)
{
	char		path[PATH_MAX];
	bool		found = open_base(h, path, sizeof(path));

	if (found && make_own(h) && try_one(h))
	{
		complain("tools run in cgroups below \"%s\"", path);
		return;
	}
	if (found || h->cgroup_named)
		complain("tools can't have cgroups below \"%s\": %s", path, strerror(errno));
	cgroup_close(h);
}

void
cgroup_close(Helper *h)
{
	if (h->cgroup_fd >= 0)
	{
		set_value(h->cgroup_fd, "cgroup.kill", "1");
		remove_cgroup(h->cgroup_base_fd, h->cgroup_name, 0);
		close(h->cgroup_fd);
	}
	if (h->cgroup_base_fd >= 0)
		close(h->cgroup_base_fd);
	h->cgroup_fd = h->cgroup_base_fd = -1;
}

/* ---- a tool's ---- */

static bool
limit_memory(const Helper *h, Job *job)
{
	char		bytes[32];

	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long) job->memory_max);
	if (!set_job_value(h, job, "memory.max", bytes) || !set_job_value(h, job, "memory.oom.group", "1"))
		return false;
	job->memory_max = 0;
	return set_job_value(h, job, "memory.swap.max", "0") || errno == ENOENT;
}

/* Another is made for all jobs from now on when ours is gone, because somebody has cleaned up. */
static bool
make_directory(Helper *h, Job *job)
{
	snprintf(job->cgroup, sizeof(job->cgroup), "%llu", (unsigned long long) h->cgroup_count++);
	return mkdirat(h->cgroup_fd, job->cgroup, 0700) == 0 ||
		(errno == ENOENT && make_own(h) && mkdirat(h->cgroup_fd, job->cgroup, 0700) == 0);
}

int
cgroup_make(Helper *h, Job *job)
{
	int			fd = -1;

	if (!make_directory(h, job))
		job->cgroup[0] = '\0';
	else if (!h->cgroup_memory || job->memory_max == 0 || limit_memory(h, job))
		fd = openat(h->cgroup_fd, job->cgroup, DIR_FLAGS);
	return fd;
}

void
cgroup_kill(const Helper *h, const Job *job)
{
	if (job->cgroup[0] != '\0')
		set_job_value(h, job, "cgroup.kill", "1");
}

/* Has it reached its own limit, and not its server's or the machine's? */
static bool
out_of_memory(const Helper *h, const Job *job)
{
	char		path[64];
	char		line[64];
	FILE	   *f;
	long		count = 0;
	int			fd;

	snprintf(path, sizeof(path), "%s/memory.events", job->cgroup);
	fd = openat(h->cgroup_fd, path, O_RDONLY | O_CLOEXEC);
	f = fd >= 0 ? fdopen(fd, "r") : NULL;
	while (f && count == 0 && fgets(line, sizeof(line), f))
		sscanf(line, "oom %ld", &count);
	if (f)
		fclose(f);
	return count > 0;
}

bool
cgroup_drop(Helper *h, Job *job)
{
	if (job->cgroup[0] == '\0')
		return true;
	if (h->cgroup_memory && !job->oom)
		job->oom = out_of_memory(h, job);
	if (!remove_cgroup(h->cgroup_fd, job->cgroup, 0))
		return false;
	job->cgroup[0] = '\0';
	return true;
}

/* ---- what dead helpers left ---- */

static void
remove_dead(int base, int dir, const char *name)
{
	int			turn;

	set_value(dir, "cgroup.kill", "1");
	for (turn = 0; turn < SWEEP_TURNS && !remove_cgroup(base, name, 0); turn++)
		poll(NULL, 0, 10);
	if (turn == SWEEP_TURNS)
		complain("could not remove cgroup \"%s\"", name);
}

void
cgroup_sweep(const Helper *h)
{
	int			copy = h->cgroup_base_fd >= 0 ? dup(h->cgroup_base_fd) : -1;
	DIR		   *list = copy >= 0 ? fdopendir(copy) : NULL;
	size_t		len = strlen(server_name(h)) + strlen("-run-");
	struct dirent *entry;

	while (list && (entry = readdir(list)) != NULL)
	{
		int			dir;

		if (strncmp(entry->d_name, h->cgroup_name, len) != 0 || strcmp(entry->d_name, h->cgroup_name) == 0)
			continue;
		dir = openat(h->cgroup_base_fd, entry->d_name, DIR_FLAGS);
		if (dir >= 0 && flock(dir, LOCK_EX | LOCK_NB) == 0)
			remove_dead(h->cgroup_base_fd, dir, entry->d_name);
		if (dir >= 0)
			close(dir);
	}
	if (list)
		closedir(list);
}
