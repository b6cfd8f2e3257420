/*
 * tree.c
 *	  Finds and kills all processes that a tool has started.
 *
 * The helper is a child subreaper: all processes of a tool descend from it.  A
 * process becomes the helper's own child when its parent dies, also after
 * setsid, a double fork, or a changed environment.  Descendants of a job's
 * main process belong to that job.  An adopted child belongs to the job with
 * its tag.  The tag is an unused resource limit: each tool gets its own value
 * of RLIMIT_RTTIME (CPU time of real-time scheduled processes, in
 * microseconds; the values stand for more than 100,000 years). fork and exec
 * inherit it, and other processes can read it.  A child with a tag of no
 * running job has outlived its job and is killed at once.
 *
 * Signals go only to processes that no other process can replace meanwhile:
 * children that the helper has not reaped, and their descendants at this
 * moment.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "helper.h"

#define TAG_TOP		((rlim_t) 1 << 62)
#define TAG_FLOOR	((rlim_t) 1 << 52)
#define TAG_COUNT	((uint64_t) 1 << 40)

bool		tree_use_scan = false;

void
tree_setup(Helper *h)
{
	struct rlimit limit;
	char		path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int) getpid());
	tree_use_scan = access(path, R_OK) != 0;
	if (getrlimit(RLIMIT_RTTIME, &limit) != 0)
		return;
	h->tag_base = limit.rlim_max > TAG_TOP ? TAG_TOP : limit.rlim_max;
	if (h->tag_base < TAG_FLOOR)
	{
		log_line("RLIMIT_RTTIME is set: processes that leave their tool's session may outlive it");
		h->tag_base = 0;
	}
}

rlim_t
tree_new_tag(Helper *h)
{
	return h->tag_base ? h->tag_base - 1 - (h->tag_count++ % TAG_COUNT) : 0;
}

/* ---- listing ---- */

/* Adds the numbers in a file of /proc. A buffer may end within a number. */
static int
add_listed(const char *path, pid_t *pids, int count, int max)
{
	char		buf[4096];
	int			fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t		got;
	pid_t		pid = 0;
	ssize_t		i;

	if (fd < 0)
		return count;
	while ((got = read(fd, buf, sizeof(buf))) > 0)
		for (i = 0; i < got; i++)
		{
			if (buf[i] >= '0' && buf[i] <= '9')
				pid = pid * 10 + (buf[i] - '0');
			else if (pid > 0)
			{
				if (count < max)
					pids[count++] = pid;
				pid = 0;
			}
		}
	close(fd);
	return count;
}

/*
 * Adds the children of a process.  Each thread has its own file of children;
 * the helper has one thread.
 */
static int
add_children_by_file(pid_t parent, pid_t *pids, int count, int max)
{
	char		path[64];
	DIR		   *dir;
	struct dirent *entry;

	if (parent == getpid())
	{
		snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int) parent, (int) parent);
		return add_listed(path, pids, count, max);
	}
	snprintf(path, sizeof(path), "/proc/%d/task", (int) parent);
	dir = opendir(path);
	if (!dir)
		return count;
	while ((entry = readdir(dir)) != NULL)
	{
		int			task = atoi(entry->d_name);

		if (task <= 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int) parent, task);
		count = add_listed(path, pids, count, max);
	}
	closedir(dir);
	return count;
}

/*
 * Returns the parent of a process.  It is the second field after the name,
 * which may have any bytes but ends at the last ')'.
 */
static pid_t
parent_of(pid_t pid)
{
	char		path[64];
	char		stat[512];
	char	   *at;
	ssize_t		got;
	int			fd;
	int			parent;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	got = read(fd, stat, sizeof(stat) - 1);
	close(fd);
	if (got <= 0)
		return -1;
	stat[got] = '\0';
	at = strrchr(stat, ')');
	return at && sscanf(at + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

static int
add_children_by_scan(pid_t parent, pid_t *pids, int count, int max)
{
	DIR		   *dir = opendir("/proc");
	struct dirent *entry;

	if (!dir)
		return count;
	while ((entry = readdir(dir)) != NULL)
	{
		pid_t		pid = atoi(entry->d_name);

		if (pid > 0 && parent_of(pid) == parent && count < max)
			pids[count++] = pid;
	}
	closedir(dir);
	return count;
}

static int
add_children(pid_t parent, pid_t *pids, int count, int max)
{
	if (tree_use_scan)
		return add_children_by_scan(parent, pids, count, max);
	return add_children_by_file(parent, pids, count, max);
}

/* Adds all descendants of root, nearest first. */
int
tree_descendants(pid_t root, pid_t *pids, int count, int max)
{
	int			next = count;

	count = add_children(root, pids, count, max);
	for (; next < count; next++)
		count = add_children(pids[next], pids, count, max);
	return count;
}

/* ---- owners ---- */

/*
 * Returns the job that an adopted child (a zombie too) belongs to; NULL: none
 * that still runs.  When a program has lowered the limit with the tag, its
 * session may still identify the job.
 */
Job *
tree_owner(Helper *h, pid_t pid)
{
	struct rlimit limit = {0, 0};
	pid_t		session = getsid(pid);
	Job		   *owner = NULL;
	int			i;

	if (h->tag_base)
		prlimit(pid, RLIMIT_RTTIME, NULL, &limit);
	for (i = 0; i < h->njobs; i++)
	{
		Job		   *job = h->jobs[i];

		if (job->state >= JOB_STUCK)
			continue;
		if (job->tag && job->tag == limit.rlim_max)
			return job;
		if (job->session == session)
			owner = job;
	}
	return owner;
}

static bool
is_known_child(const Helper *h, pid_t pid)
{
	int			i;

	if (pid == h->cleaner || launch_knows(h, pid))
		return true;
	for (i = 0; i < h->njobs; i++)
		if (h->jobs[i]->pid == pid)
			return true;
	return false;
}

/*
 * True if the child may be a tool with a pid that is not yet known.  The
 * kernel lists it as a child a moment before its starter's memory has the pid.
 * Until then it is in the helper's session, like no other child for long.
 */
static bool
is_being_cloned(const Helper *h, pid_t pid)
{
	return getsid(pid) == getsid(0) || is_known_child(h, pid);
}

/* ---- signalling ---- */

/*
 * Signals each process that is not in this group, which has the signal already
 * (0: all).
 */
static void
signal_listed(const pid_t *pids, int from, int count, int sig, pid_t group)
{
	int			i;

	for (i = from; i < count; i++)
		if (group == 0 || getpgid(pids[i]) != group)
			kill(pids[i], sig);
}

/*
 * Signals the group of a child.  Until the child has called setsid, it is
 * alone.
 */
static void
signal_group(pid_t leader, int sig)
{
	if (leader > 0 && kill(-leader, sig) != 0)
		kill(leader, sig);
}

/*
 * Signals the main process's group, all its descendants, and the adopted
 * processes of the job.  A stopped process takes TERM when it is continued.
 */
void
tree_signal(Helper *h, Job *job, int sig)
{
	pid_t		pids[MAX_LISTED];
	int			adopted;
	int			count = 0;
	int			i;

	if (job->pid > 0)
		count = tree_descendants(job->pid, pids, 0, MAX_LISTED);
	adopted = add_children(h->pid, pids, count, MAX_LISTED);
	for (i = count; i < adopted; i++)
		if (!is_known_child(h, pids[i]) && tree_owner(h, pids[i]) == job)
			pids[count++] = pids[i];
	adopted = count;
	for (i = job->pid > 0 ? adopted : 0; i < adopted; i++)
		count = tree_descendants(pids[i], pids, count, MAX_LISTED);
	signal_group(job->pid, sig);
	signal_listed(pids, 0, count, sig, job->pid);
	if (sig == SIGKILL)
		return;
	signal_group(job->pid, SIGCONT);
	signal_listed(pids, 0, count, SIGCONT, job->pid);
}

/*
 * Checks all adopted children once: kills those of ended jobs with their
 * descendants, and counts them in job->alive.  The helper's own list of
 * children is exact, since only the helper reaps them.  Deeper processes may
 * be missed in a pass, but become children when their parent dies.
 */
void
tree_sweep(Helper *h)
{
	pid_t		pids[MAX_LISTED];
	int			children;
	int			i;

	for (i = 0; i < h->njobs; i++)
		h->jobs[i]->alive = 0;
	if (h->childless)
		return;
	children = add_children(h->pid, pids, 0, MAX_LISTED / 2);
	for (i = 0; i < children; i++)
	{
		Job		   *owner;
		int			count;

		if (is_known_child(h, pids[i]))
			continue;
		owner = tree_owner(h, pids[i]);
		if ((owner && owner->state != JOB_SWEEPING) || (!owner && is_being_cloned(h, pids[i])))
			continue;
		if (owner)
			owner->alive++;
		count = tree_descendants(pids[i], pids, children, MAX_LISTED);
		kill(pids[i], SIGKILL);
		signal_listed(pids, children, count, SIGKILL, 0);
	}
}
