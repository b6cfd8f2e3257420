/*
 * setup.c
 *	  Drops everything that the helper inherited, and arms its signals, before
 *	  anything else.
 *
 * A child of a PostgreSQL process inherits open catalog files (before 16),
 * ignored and blocked signals, the server's environment, its process group (to
 * which the postmaster sends signals) and its protection from the OOM killer.
 * None of it may reach a tool, so all of it is dropped here, once.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "helper.h"

static bool
setup_descriptors(void)
{
	struct stat st;
	int			null;

	if (fstat(FRAME_FD, &st) != 0 || !S_ISSOCK(st.st_mode))
	{
		log_line("descriptor %d is not a socket", FRAME_FD);
		return false;
	}
	close_from(FRAME_FD + 1);
	if (fcntl(STDERR_FILENO, F_GETFD) < 0)
		close(STDERR_FILENO);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
	{
		log_line("could not open /dev/null: %s", strerror(errno));
		return false;
	}
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	if (fcntl(STDERR_FILENO, F_GETFD) < 0)
		dup2(null, STDERR_FILENO);
	if (null > STDERR_FILENO)
		close(null);
	fcntl(FRAME_FD, F_SETFD, FD_CLOEXEC);
	return true;
}

/*
 * Resets every signal (ignored ones survive exec), blocks all, and returns the
 * signalfd.
 */
static int
setup_signals(void)
{
	struct sigaction act;
	sigset_t	all;
	sigset_t	read_here;
	unsigned long none[4] = {0};	/* the kernel's struct sigaction */
	int			sig;

	memset(&act, 0, sizeof(act));
	act.sa_handler = SIG_DFL;
	for (sig = 1; sig < NSIG; sig++)
	{
		/*
		 * the C library reserves two signals, and posix_spawn passes them on
		 * ignored
		 */
		if (sigaction(sig, &act, NULL) != 0)
			syscall(SYS_rt_sigaction, sig, &none, NULL, 8);
	}
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&read_here);
	sigaddset(&read_here, SIGCHLD);
	sigaddset(&read_here, SIGTERM);
	return signalfd(-1, &read_here, SFD_CLOEXEC | SFD_NONBLOCK);
}

/*
 * Undoes the server's protection.  Runs before PR_SET_DUMPABLE, which makes
 * this file root's.  The descriptor stays open for launch.c, so that the
 * kernel kills tools before the helper, unless the helper's own score is as
 * bad.
 */
static void
setup_oom_score(Helper *h)
{
	int			fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	int			score = 0;

	h->oom_fd = -1;
	if (fd < 0)
		return;
	if (read(fd, h->oom_score, sizeof(h->oom_score) - 1) > 0 && (score = atoi(h->oom_score)) < 500)
		h->oom_fd = fd;
	else
		close(fd);
	if (h->oom_fd < 0 || score >= 0)
		return;
	strcpy(h->oom_score, "0");
	if (pwrite(fd, "0", 1, 0) < 0)
		log_line("could not undo the OOM protection: %s", strerror(errno));
}

/*
 * Disables core dumps of the helper and, by inheritance, of tools: they would
 * contain payloads.
 */
static void
disable_core_dumps(void)
{
	struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
}

/*
 * Raises the descriptor limit for many tools at once; tools get the limit of
 * START. With too few descriptors fewer tools may run: some must remain to
 * find the leftovers of tools.
 */
static void
raise_nofile(Helper *h)
{
	struct rlimit limit = {0, 0};
	rlim_t		wanted = MAX_JOBS * JOB_FDS + MAX_SPARES + SPARE_FDS;

	getrlimit(RLIMIT_NOFILE, &limit);
	h->nofile = limit;
	if (limit.rlim_cur < wanted)
		limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		limit = h->nofile;
	h->max_jobs = MAX_JOBS;
	h->max_spares = limit.rlim_cur < wanted ? FEW_SPARES : MAX_SPARES;
	if (limit.rlim_cur < wanted - MAX_SPARES)
		h->max_jobs = limit.rlim_cur > SPARE_FDS ? (int) ((limit.rlim_cur - SPARE_FDS) / JOB_FDS) : 0;
	if (h->max_jobs < MAX_JOBS)
		log_line("descriptors suffice for %d tools at once only", h->max_jobs);
}

/*
 * Arms the parent-death signal.  Returns false if the parent is gone: it may
 * have died before.
 */
static bool
arm_parent_death(long parent_pid)
{
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0)
		return false;
	return parent_pid == 0 || getppid() == parent_pid;
}

bool
setup_process(Helper *h, long parent_pid)
{
	h->sock = h->base_fd = h->run_fd = h->cgroup_base_fd = h->cgroup_fd = -1;
	if (!setup_descriptors())
		return false;
	h->sock = FRAME_FD;
	h->signals = setup_signals();
	if (h->signals < 0)
	{
		log_line("could not make a signalfd: %s", strerror(errno));
		return false;
	}
	setsid();					/* fails for a group leader, which needs
								 * none */
	umask(077);
	if (chdir("/") != 0 || clearenv() != 0)
		log_line("could not leave the current directory");
	setup_oom_score(h);
	disable_core_dumps();
	raise_nofile(h);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
		prctl(PR_SET_DUMPABLE, 0) != 0)
	{
		log_line("could not set up the process: %s", strerror(errno));
		return false;
	}
	h->pid = getpid();
	h->max_frame = FRAME_MAX_DEFAULT;
	frame_decoder_init(&h->in, h->max_frame);
	tree_setup(h);
	if (!arm_parent_death(parent_pid))
	{
		log_line("the process that started it is gone");
		return false;
	}
	return true;
}
