/*
 * orphans.c
 *	  The end of helpers whose worker is gone, before there are tools of ours.
 *
 * A helper leaves when its socket closes, and its tools with it; but one that stands still, stopped or out of luck with the
 * scheduler, does not notice.  The server meanwhile has another worker, which starts the same jobs anew.  So a new helper
 * looks for such ones among those that have a directory in its own base (workdir.c), and kills them; their tools die with
 * them (starter.c).  Who is one: its parent is not the one that its command line names.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "helper.h"

#define ORPHANS_MAX_MS 5000		/* one that KILL does not end is left */

/* The beginning of a file of that process; it ends with a zero byte.  How long it is, 0: there is none. */
static size_t
read_of(pid_t pid, const char *file, char *buf, size_t size)
{
	char		path[64];
	ssize_t		n;
	int			fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, buf, size - 1);
	close(fd);
	buf[n > 0 ? n : 0] = '\0';
	return n > 0 ? (size_t) n : 0;
}

/* Its state, 0: it is gone. */
static char
state_of(pid_t pid, pid_t *parent)
{
	char		stat[512];
	char		state = 0;
	const char *at;

	if (read_of(pid, "stat", stat, sizeof(stat)) == 0 || (at = strrchr(stat, ')')) == NULL ||
		sscanf(at, ") %c %d", &state, parent) != 2)
		return 0;
	return state;
}

static bool
has_ended(pid_t pid)
{
	pid_t		parent;
	char		state = state_of(pid, &parent);

	return state == 0 || state == 'Z' || state == 'X';
}

/* A helper's command line is its name and --parent-pid=PID. */
static bool
is_orphan(pid_t pid)
{
	static const char option[] = "--parent-pid=";
	char		line[512];
	size_t		len = read_of(pid, "cmdline", line, sizeof(line));
	const char *named;
	pid_t		parent;

	if (len == 0 || strcmp(line, "jobq-helper") != 0 || has_ended(pid))
		return false;
	named = line + strlen(line) + 1;
	if (named >= line + len || strncmp(named, option, sizeof(option) - 1) != 0)
		return false;
	return state_of(pid, &parent) != 0 && parent != atoi(named + sizeof(option) - 1);
}

/* Whose directory nobody has locked has ended. */
static bool
is_locked(const Helper *h, const char *run)
{
	int			dir = openat(h->base_fd, run, DIR_FLAGS);
	bool		locked = dir >= 0 && flock(dir, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;

	if (dir >= 0)
		close(dir);
	return locked;
}

static void
end_orphan(pid_t pid)
{
	uint64_t	give_up = after_us(now_us(), ORPHANS_MAX_MS * UINT64_C(1000));

	if (kill(pid, SIGKILL) != 0)
		return;
	complain("the helper %d of a worker that is gone stood still and has been killed", (int) pid);
	while (!has_ended(pid) && now_us() < give_up)
		poll(NULL, 0, 1);
}

void
end_orphans(const Helper *h)
{
	DIR		   *list = fdopendir(dup(h->base_fd));
	struct dirent *entry;

	if (!list)
		return;
	rewinddir(list);
	while ((entry = readdir(list)) != NULL)
	{
		int			pid;

		if (sscanf(entry->d_name, "run-%d-", &pid) == 1 && pid > 1 && pid != h->pid &&
			is_locked(h, entry->d_name) && is_orphan(pid))
			end_orphan(pid);
	}
	closedir(list);
}
