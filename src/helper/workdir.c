/*
 * workdir.c
 *	  Makes, reuses and removes the private directories of tools.
 *
 *	 <base>/					given by the worker, 0700, shared by the
 *								helpers of all databases
 *	 <base>/run-<pid>-<n>/		one helper's; locked while that helper lives
 *	 <base>/run-.../<n>/		one tool's: its current directory, TMPDIR and
 *								HOME; or one for a tool to come
 *	 <base>/run-.../trash-<n>/	an ended tool's, to be removed
 *
 * Most tools leave their directory empty.  It then gets another name and stays
 * open for another tool: removing and making a directory takes longer than all
 * the rest of a short tool's life (ext4: 0.4 to 1.4 ms; a rename: 0.03 ms).
 * Any other directory is renamed, and a child process removes it, the cleaner
 * (cleaner.c), so that the loop does not wait.  One cleaner runs at a time;
 * the first also removes the leftovers of dead helpers.
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
		log_line("could not make \"%s\": %s", h->base_path, strerror(errno));
		return false;
	}
	h->base_fd = open(h->base_path, DIR_FLAGS);
	if (h->base_fd < 0 || fstat(h->base_fd, &st) != 0)
	{
		log_line("could not open \"%s\": %s", h->base_path, strerror(errno));
		return false;
	}
	if (st.st_uid == geteuid() && (st.st_mode & 022) == 0)
		return true;
	log_line("\"%s\" must belong to the server's user, and only that user may write it", h->base_path);
	errno = EACCES;
	return false;
}

/*
 * Makes and locks the helper's directory.  Before it is locked, the cleaner of
 * another helper may take it for a dead helper's and remove it: then makes
 * another.
 */
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
	log_line("could not make a directory in \"%s\": %s", h->base_path, strerror(errno));
	return false;
}

/*
 * Resolves links in the path, as the kernel shows it for a tool's current
 * directory.
 */
static bool
resolve_base(Helper *h)
{
	char	   *real = realpath(h->base_path, NULL);

	if (!real || strlen(real) > PATH_MAX - 128)
	{
		log_line("could not resolve \"%s\": %s", h->base_path, strerror(errno));
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

/*
 * Opens the base directory.  Tries twice: the last helper to exit removes it,
 * perhaps at this moment.
 */
bool
workdir_open(Helper *h, FrameText base)
{
	if (base.len == 0 || base.data[0] != '/' || base.len > PATH_MAX - 128)
	{
		log_line("the work directory must be an absolute path");
		return false;
	}
	h->base_path = strndup(base.data, base.len);
	h->trash = true;			/* leftovers of dead helpers */
	return h->base_path && (open_again(h) || open_again(h));
}

static const char *
numbered(char *room, size_t size, const char *prefix, uint64_t number)
{
	snprintf(room, size, "%s%llu", prefix, (unsigned long long) number);
	return room;
}

/* Takes a spare directory. One that was removed meanwhile has no links. */
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

/*
 * Gets a directory for a job.  When the helper's own directory was removed,
 * makes another one for all later jobs.
 */
bool
workdir_make(Helper *h, Job *job)
{
	if (take_spare(h, job) || make_directory(h, job) ||
		((errno == ENOENT || h->run_fd < 0) && open_again(h) && make_directory(h, job)))
		return true;
	job->dir[0] = '\0';
	return false;
}

/*
 * True if the directory is empty.  A call may return fewer entries than there
 * are; only zero is the end.
 */
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
 * True if the directory still has its name and mode, is empty, and never had
 * so many files that it stays large.
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

/* Keeps the directory under another name, since the tool knows the old one. */
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

/* ---- removing ---- */

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
		return;					/* tried again after the next job */
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
	rmdir(h->base_path);		/* fails while others use it; a new helper
								 * makes it again */
	close(h->run_fd);
	close(h->base_fd);
	h->run_fd = h->base_fd = -1;
}
