/*
 * cgroup.c
 *	  Puts tools in cgroups (version 2), if part of the hierarchy is available.
 *
 *	 <base>/						the server's unit, delegated by systemd, or
 *									the directory in jobq.tool_cgroup
 *	 <base>/<server>-run-<pid>-<n>/	one helper's; locked while it lives
 *	 <base>/.../<n>/				one tool's
 *
 * A tool is born in its cgroup.  (A write to cgroup.procs would stop all forks
 * of the machine for a moment.) So its memory.max covers all processes of the
 * tool, and one write to cgroup.kill ends them, however fast they fork.  A
 * cgroup has either processes or controllers for its children: the server must
 * be in a cgroup beside the helper's.
 *
 * Owners and modes do not show whether it works, so the helper tries it once.
 * Without the memory controller the kill is still useful, and memory_max is
 * RLIMIT_AS as everywhere else.
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

#define MAX_NESTED	16			/* depth of cgroups made by a tool */
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

/* Writes a file of a job's cgroup. */
static bool
set_job_value(const Helper *h, const Job *job, const char *file, const char *value)
{
	char		path[64];

	snprintf(path, sizeof(path), "%s/%s", job->cgroup, file);
	return set_value(h->cgroup_fd, path, value);
}

/* Does the same as fork, into that cgroup. */
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

/* Removes a cgroup with its children. false: a process is left in one. */
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

/* Reads the cgroup of this process in the version 2 hierarchy. */
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

/* Finds the parent of that cgroup in a line of mountinfo. false: not there. */
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
	return snprintf(path, size, "%s%.*s", point, (int) (last - own - (ptrdiff_t) len),
					own + len) < (int) size;
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

/* True if systemd has delegated the cgroup to a unit. */
static bool
is_delegated(int dir)
{
	char		value;

	return fgetxattr(dir, "user.delegate", &value, 1) == 1 && value == '1';
}

/*
 * Opens the named base, or else the parent of the helper's cgroup if it is
 * delegated.
 */
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

/* ---- the helper's ---- */

/*
 * Returns a name common to all helpers of a server: that of their base
 * directory.
 */
static const char *
server_name(const Helper *h)
{
	return strrchr(h->base_path, '/') + 1;
}

/*
 * Makes and locks the helper's cgroup.  Before it is locked, the cleaner of
 * another helper may take it for a dead helper's and remove it: then makes
 * another.
 */
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
		log_line("no memory controller for cgroup \"%s\": %s", h->cgroup_name, strerror(errno));
	return attempt < 100;
}

/* Tries a child that exits at once: checks permissions and kernel. */
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
		log_line("tools run in cgroups below \"%s\"", path);
		return;
	}
	if (found || h->cgroup_named)
		log_line("tools can't have cgroups below \"%s\": %s", path, strerror(errno));
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

/*
 * Makes the job's cgroup.  When the helper's own was removed, makes another
 * one for all later jobs.
 */
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

/*
 * True if the job reached its own limit, and not the server's or the
 * machine's.
 */
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

/* ---- leftovers of dead helpers ---- */

static void
remove_dead(int base, int dir, const char *name)
{
	int			turn;

	set_value(dir, "cgroup.kill", "1");
	for (turn = 0; turn < SWEEP_TURNS && !remove_cgroup(base, name, 0); turn++)
		poll(NULL, 0, 10);
	if (turn == SWEEP_TURNS)
		log_line("could not remove cgroup \"%s\"", name);
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
