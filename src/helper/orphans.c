/*
 * orphans.c
 *	  Kills helpers that have lost their worker, and the leftovers of their
 *	  tools, before this helper starts tools.
 *
 * A helper exits when its socket closes, and its tools with it.  But a stopped
 * helper, or one that gets no processor time, does not notice.  Meanwhile the
 * server has another worker, which starts the same jobs again.  So a new
 * helper searches its base directory (workdir.c) for directories of such
 * helpers, and kills those that do not exit; their tools die with them
 * (starter.c). Then it kills leftovers of the tools of dead helpers
 * (cleaner.c), as far as environment or directory identify them.  The cleaner
 * handles the rest, and the directories.
 *
 * An orphan is a session leader named jobq-helper with a parent other than the
 * one in its command line.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "helper.h"

#define LEAVES_MAX_US	UINT64_C(500000)	/* time to exit by itself */
#define ORPHANS_MAX_US	UINT64_C(5000000)	/* for all of them; one that
											 * KILL does not end is left */

/*
 * Reads the beginning of a file of that process, with a zero byte at the end.
 * Returns its length, 0: no file.
 */
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

/*
 * Returns PID of its command line "jobq-helper --parent-pid=PID". 0: it is no
 * helper.
 */
static pid_t
named_parent(pid_t pid)
{
	static const char option[] = "--parent-pid=";
	char		line[512];
	size_t		len = read_of(pid, "cmdline", line, sizeof(line));
	const char *named;

	if (len == 0 || strcmp(line, "jobq-helper") != 0)
		return 0;
	named = line + strlen(line) + 1;
	if (named >= line + len || strncmp(named, option, sizeof(option) - 1) != 0)
		return 0;
	return atoi(named + sizeof(option) - 1);
}

/*
 * Returns the state of an orphan, 0: it is none, or has ended.  Starters and
 * cleaners lead no session.
 */
static char
orphan_state(pid_t pid)
{
	pid_t		worker = named_parent(pid);
	char		stat[512];
	const char *at;
	char		state;
	int			parent;
	int			session;

	if (worker == 0 || read_of(pid, "stat", stat, sizeof(stat)) == 0 || (at = strrchr(stat, ')')) == NULL ||
		sscanf(at, ") %c %d %*d %d", &state, &parent, &session) != 3)
		return 0;
	return session == pid && parent != worker && state != 'Z' && state != 'X' ? state : 0;
}

/* True if the helper of that directory lives. */
static bool
is_locked(const Helper *h, const char *run)
{
	int			dir = openat(h->base_fd, run, DIR_FLAGS);
	bool		locked = dir >= 0 && flock(dir, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;

	if (dir >= 0)
		close(dir);
	return locked;
}

/*
 * True if the orphan does not exit by itself.  A running one does so in a
 * moment.
 */
static bool
stays(const Helper *h, const char *run, pid_t pid)
{
	uint64_t	until = after_us(now_us(), LEAVES_MAX_US);
	char		state;

	while ((state = orphan_state(pid)) != 0 && is_locked(h, run))
	{
		if (state == 'T' || now_us() >= until)
			return true;
		poll(NULL, 0, 5);
	}
	return false;
}

/*
 * Kills an orphan that does not exit.  Opens the pidfd before the check, so
 * that the signal reaches the process that was checked.
 */
static void
end_orphan(const Helper *h, const char *run, pid_t pid, uint64_t until)
{
	struct pollfd process = {.events = POLLIN};

	process.fd = (int) syscall(SYS_pidfd_open, pid, 0);
	if (process.fd < 0)
		return;
	if (stays(h, run, pid) && syscall(SYS_pidfd_send_signal, process.fd, SIGKILL, NULL, 0) == 0)
	{
		uint64_t	now = now_us();

		log_line("helper %d, which has lost its worker, did not exit and was killed", (int) pid);
		poll(&process, 1, now < until ? (int) ((until - now) / 1000) : 0);
	}
	close(process.fd);
}

void
end_orphans(const Helper *h)
{
	DIR		   *list = fdopendir(dup(h->base_fd));
	uint64_t	until = after_us(now_us(), ORPHANS_MAX_US);
	struct dirent *entry;

	if (!list)
		return;
	rewinddir(list);
	while ((entry = readdir(list)) != NULL)
	{
		int			pid;

		if (strcmp(entry->d_name, h->run_name) == 0 || sscanf(entry->d_name, "run-%d-", &pid) != 1 ||
			pid <= 1)
			continue;
		if (is_locked(h, entry->d_name))
			end_orphan(h, entry->d_name, pid, until);
		if (!is_locked(h, entry->d_name))
			kill_leftovers(h, entry->d_name);
	}
	closedir(list);
}
