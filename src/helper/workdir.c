/*
 * workdir.c
 *	  Private directories of tools, and their removal.
 *
 *	 <base>/					given by the worker; ours, 0700; shared by the helpers of all databases
 *	 <base>/run-<pid>-<n>/		one helper's; it holds a lock on it, so that an unlocked one is a dead one's
 *	 <base>/run-.../<n>/		one tool's: its current directory, TMPDIR and HOME; or one for a tool to come
 *	 <base>/run-.../trash-<n>/	a finished tool's, to be removed
 *
 * A directory that a tool leaves empty, as most do, gets another name and is kept, open, for another tool:
 * removing one and making one takes longer than all the rest of a short tool's life (ext4: 0.4 to 1.4 ms; a
 * rename: 0.03 ms).  Any other is renamed and left to a child process, the cleaner (cleaner.c), so that
 * the loop does not stand still.  There is one cleaner at a time; the first also sweeps what dead helpers
 * left.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "helper.h"

/* ---- making ---- */

static bool
open_base(Helper *h)
{
	struct stat st;

	if (mkdir(h->base_path, 0700) != 0 && errno != EEXIST)
	{
		complain("could not make \"%s\": %s", h->base_path, strerror(errno));
		return false;
	}
	h->base_fd = open(h->base_path, DIR_FLAGS);
	if (h->base_fd < 0 || fstat(h->base_fd, &st) != 0)
	{
		complain("could not open \"%s\": %s", h->base_path, strerror(errno));
		return false;
	}
	if (st.st_uid == geteuid() && (st.st_mode & 022) == 0)
		return true;
	complain("\"%s\" must belong to the server's user and be writable for nobody else", h->base_path);
	errno = EACCES;
	return false;
}

/* A sweeper may take a fresh one for a dead helper's, in the moment before it is locked: then another. */
static bool
make_run(Helper *h)
{
	int			attempt;

	for (attempt = 0; attempt < 100; attempt++)
	{
		struct stat st;

		snprintf(h->run_name, sizeof(h->run_name), "run-%d-%llx", (int) h->pid,
				 (unsigned long long) now_us());
		if (mkdirat(h->base_fd, h->run_name, 0700) != 0)
		{
			if (errno == EEXIST)
				continue;
			break;
		}
		h->run_fd = openat(h->base_fd, h->run_name, DIR_FLAGS);
		if (h->run_fd < 0)
			continue;
		if (flock(h->run_fd, LOCK_EX | LOCK_NB) == 0 &&
			fstatat(h->base_fd, h->run_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			return true;
		close(h->run_fd);
		h->run_fd = -1;
	}
	complain("could not make a directory in \"%s\": %s", h->base_path, strerror(errno));
	return false;
}

/* The path without links in it, as the kernel will show it for a tool's current directory. */
static bool
resolve_base(Helper *h)
{
	char	   *real = realpath(h->base_path, NULL);

	if (!real || strlen(real) > PATH_MAX - 128)
	{
		complain("could not resolve \"%s\": %s", h->base_path, strerror(errno));
		free(real);
		return false;
	}
	free(h->base_path);
	h->base_path = real;
	return true;
}

static bool
open_again(Helper *h)
{
	if (h->base_fd >= 0)
		close(h->base_fd);
	if (h->run_fd >= 0)
		close(h->run_fd);
	h->base_fd = h->run_fd = -1;
	while (h->spares > 0)
		close(h->spare[--h->spares].fd);
	return open_base(h) && resolve_base(h) && make_run(h);
}

/* A second try: the last helper to leave removes the base directory, perhaps at this moment. */
bool
workdir_open(Helper *h, FrameText base)
{
	if (base.len == 0 || base.data[0] != '/' || base.len > PATH_MAX - 128)
	{
		complain("the work directory must be an absolute path");
		return false;
	}
	h->base_path = strndup(base.data, base.len);
	h->trash = true;			/* of dead helpers */
	return h->base_path && (open_again(h) || open_again(h));
}

static const char *
numbered(char *room, size_t size, const char *prefix, uint64_t number)
{
	snprintf(room, size, "%s%llu", prefix, (unsigned long long) number);
	return room;
}

/* One that somebody has removed meanwhile has no links. */
static bool
take_spare(Helper *h, Job *job)
{
	while (h->spares > 0)
	{
		struct stat st;

		h->spares--;
		numbered(job->dir, sizeof(job->dir), "", h->spare[h->spares].number);
		job->dir_fd = h->spare[h->spares].fd;
		if (fstat(job->dir_fd, &st) == 0 && st.st_nlink > 0)
			return true;
		close(job->dir_fd);
		job->dir_fd = -1;
	}
	return false;
}

static bool
make_directory(Helper *h, Job *job)
{
	numbered(job->dir, sizeof(job->dir), "", h->dir_count++);
	if (mkdirat(h->run_fd, job->dir, 0700) != 0)
		return false;
	job->dir_fd = openat(h->run_fd, job->dir, DIR_FLAGS);
	return job->dir_fd >= 0;
}

/* Where ours is gone, because somebody has cleaned up, another is made for all jobs from now on. */
bool
workdir_make(Helper *h, Job *job)
{
	if (take_spare(h, job) || make_directory(h, job) ||
		((errno == ENOENT || h->run_fd < 0) && open_again(h) && make_directory(h, job)))
		return true;
	job->dir[0] = '\0';
	return false;
}

/* Nothing in it; a call may give fewer entries than there are, only none is the end. */
static bool
is_empty(int dir)
{
	char		buf[1024] __attribute__((aligned(8)));
	size_t		dots = 0;
	long		n;

	if (lseek(dir, 0, SEEK_SET) != 0)
		return false;
	while ((n = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0)
		for (long at = 0; at < n; at += ((struct linux_dirent64 *) (buf + at))->d_reclen)
			if (!is_dots(((struct linux_dirent64 *) (buf + at))->d_name) || ++dots > 2)
				return false;
	return n == 0;
}

/*
 * Still the one of that name, as private as it was, nothing in it, and it never had so many files that
 * it stays large.
 */
static bool
is_as_new(const Helper *h, const Job *job)
{
	struct stat st;
	struct stat named;

	return fstat(job->dir_fd, &st) == 0 && (st.st_mode & 07777) == 0700 && st.st_size <= 4096 &&
		fstatat(h->run_fd, job->dir, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
		named.st_ino == st.st_ino && named.st_dev == st.st_dev && is_empty(job->dir_fd);
}

/* Under another name: the tool knows this one. */
static bool
keep_spare(Helper *h, Job *job)
{
	char		name[32];
	uint64_t	number = h->dir_count;

	if (h->spares == h->max_spares || !is_as_new(h, job) ||
		renameat(h->run_fd, job->dir, h->run_fd, numbered(name, sizeof(name), "", number)) != 0)
		return false;
	h->dir_count++;
	h->spare[h->spares].number = number;
	h->spare[h->spares].fd = job->dir_fd;
	h->spares++;
	job->dir_fd = -1;
	return true;
}

void
workdir_drop(Helper *h, Job *job)
{
	char		trash[32];

	if (job->dir[0] != '\0' && !keep_spare(h, job))
	{
		numbered(trash, sizeof(trash), "trash-", h->trash_count++);
		if (renameat(h->run_fd, job->dir, h->run_fd, trash) == 0)
			h->trash = true;
	}
	if (job->dir_fd >= 0)
		close(job->dir_fd);
	job->dir_fd = -1;
	job->dir[0] = '\0';
}

/* ---- giving back ---- */

void
workdir_clean(Helper *h)
{
	static bool swept = false;
	pid_t		pid;

	if (!h->trash || h->cleaner != 0 || h->run_fd < 0)
		return;
	pid = fork();
	if (pid == 0)
		run_cleaner(h, !swept);
	if (pid < 0)
		return;					/* tried again when a job has ended */
	swept = true;
	h->childless = false;
	h->cleaner = pid;
	h->trash = false;
}

void
workdir_close(Helper *h)
{
	char		name[32];

	if (h->run_fd < 0)
		return;
	while (h->spares > 0)
		unlinkat(h->run_fd, numbered(name, sizeof(name), "", h->spare[--h->spares].number), AT_REMOVEDIR);
	unlinkat(h->base_fd, h->run_name, AT_REMOVEDIR);
	rmdir(h->base_path);		/* unless others are there; who comes now makes it again */
	close(h->run_fd);
	close(h->base_fd);
	h->run_fd = h->base_fd = -1;
}
