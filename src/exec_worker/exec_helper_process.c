/*
 * exec_helper_process.c
 *	  Starts jobq-helper, and owns the exec worker's end of its socket and the
 *	  queue of frames.
 *
 * One helper runs at a time.  posix_spawn starts it (no fork of this process,
 * regardless of its size) when a job needs it.  The helper gets one end of a
 * socketpair as descriptor 3, and standard error.  No signal asks it to stop:
 * it kills its tools and exits when its socket closes, also when this process
 * or the whole server dies.  After a loss the next helper starts with a delay
 * that doubles, and not before the lost one has been reaped.
 *
 * A tool can stop the helper with SIGSTOP. While tools run, the helper gets a
 * PING every LOOK_MS; any byte from it is an answer.  After MAX_MISSES checks
 * in a row without an answer it is killed, and its tools with it.  Only checks
 * count, not the time between them: after a standstill of this process or of
 * the machine, the helper gets all of its time again.
 *
 * Where the postmaster is process 1, it would reap orphaned tools and take an
 * exit code of 2 for a server crash.  There no helper is started unless
 * jobq.allow_exec_under_pid1 is set.
 */
#include "jobq.h"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "port.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#include "base/session.h"
#include "exec_worker/exec_internal.h"

#define RETRY_MIN_MS	100
#define RETRY_MAX_MS	30000
#define HEALTHY_MS		60000	/* loss of an older helper resets the delay */
#define LEAVE_MS		5000	/* a closed helper that still runs then is
								 * killed */
#define HANGS_MS		2000	/* delay while even KILL does not end it */
#define READS_A_TURN	64
#define LOOK_MS			3000
#define MAX_MISSES		10

static pgsocket helper_fd = PGINVALID_SOCKET;
static pid_t helper_pid = 0;
static MonoTime started_at = 0;
static pid_t leaving_pid = 0;	/* socket closed, not yet reaped */
static MonoTime leaving_since = 0;
static int	losses = 0;
static MonoTime retry_at = 0;
static FrameBuf out;
static FrameDecoder in;
static uint32 max_frame;
static bool heard = false;		/* the helper has sent something */

/* State of helper_watch(), which checks that a helper with jobs answers. */
static MonoTime look_at = 0;	/* 0: no jobs */
static bool pinged = false;		/* no byte since the last PING */
static int	misses = 0;
static bool helper_killed = false;
static bool replace_helper = false;	/* lost: the next one kills the
									 * leftovers of its tools */

/* Sets the text that health() shows. */
static void
set_helper_trouble(const char *why)
{
	SpinLockAcquire(&exec_db->mutex);
	strlcpy(exec_db->health.helper_trouble, why, sizeof(exec_db->health.helper_trouble));
	SpinLockRelease(&exec_db->mutex);
}

/* ---------- starting ---------- */

static int
spawn(int fd, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t	every;
	sigset_t	none;
	char		path[MAXPGPATH];
	char		parent[32];
	char		cgroup[MAXPGPATH];
	char	   *argv[] = {"jobq-helper", parent, jobq_tool_cgroup[0] ? cgroup : NULL, NULL};
	char	   *env[] = {"LANG=C.UTF-8", NULL};
	int			rc;

	snprintf(path, sizeof(path), "%s/jobq-helper", pkglib_path);
	snprintf(parent, sizeof(parent), "--parent-pid=%d", MyProcPid);
	snprintf(cgroup, sizeof(cgroup), "--cgroup=%s", jobq_tool_cgroup);
	sigfillset(&every);
	sigemptyset(&none);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, fd, FRAME_FD);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigdefault(&attr, &every);
	posix_spawnattr_setsigmask(&attr, &none);
	rc = posix_spawn(pid, path, &actions, &attr, argv, env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return rc;
}

static void
retry_later(void)
{
	int64		delay = (int64) RETRY_MIN_MS << Min(losses, 16);

	losses++;
	retry_at = mono_now() + Min(delay, RETRY_MAX_MS) * 1000;
}

/* True if the directory is, or can be made, private to the server's user. */
static bool
is_private(const char *path)
{
	struct stat st;

	return (mkdir(path, 0700) == 0 || errno == EEXIST) && lstat(path, &st) == 0 &&
		S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 022) == 0;
}

/*
 * Returns the directory for work directories: in the system's temporary
 * directory, so that a tool does not fill the server's disk.  When that is not
 * private: in the data directory, under a name that base backups exclude.
 */
static const char *
workdir_base(void)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/jobq-%llx", workdir_parent(),
			 (unsigned long long) GetSystemIdentifier());
	if (!is_private(path))
		snprintf(path, sizeof(path), "%s/pgsql_tmp_jobq", DataDir);
	return path;
}

/* Queues a frame.  false: errno is ENOMEM or E2BIG, and nothing is queued. */
static bool
append_frame(const Frame *frame)
{
	if (frame_encode(&out, frame, max_frame))
		return true;
	errno = out.failed ? ENOMEM : E2BIG;
	out.failed = false;			/* later frames may find memory */
	return false;
}

static bool
send_hello(uint32 size)
{
	Frame		frame = {.type = FRAME_HELLO};

	frame.u.hello.max_frame = size;
	frame.u.hello.pid = MyProcPid;
	frame.u.hello.workdir = frame_text(workdir_base());
	if (!append_frame(&frame))
		return false;
	max_frame = size;
	in.max_frame = size;
	return true;
}

static bool
start(void)
{
	int			pair[2];
	int			rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
	{
		ereport(LOG, (errcode_for_socket_access(), errmsg("could not make a socket pair: %m")));
		return false;
	}
	rc = spawn(pair[1], &helper_pid);
	closesocket(pair[1]);
	if (rc != 0)
	{
		closesocket(pair[0]);
		helper_pid = 0;
		errno = rc;
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not start \"%s/jobq-helper\": %m", pkglib_path)));
		return false;
	}
	helper_fd = pair[0];
	ReserveExternalFD();
	started_at = mono_now();
	max_frame = FRAME_MAX_DEFAULT;
	frame_decoder_init(&in, max_frame);
	helper_killed = false;
	heard = false;
	look_at = 0;
	if (!send_hello(FRAME_MAX_DEFAULT))
	{
		ereport(LOG, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("could not greet jobq-helper: out of memory")));
		helper_close(NULL);
		return false;
	}
	return true;
}

/* True if the closed helper has exited. */
static bool
old_one_has_left(void)
{
	int			status;

	if (leaving_pid == 0)
		return true;
	if (waitpid(leaving_pid, &status, WNOHANG) == 0)
	{
		if (mono_exceeds(leaving_since, mono_now(), LEAVE_MS))
			kill(leaving_pid, SIGKILL);
		return false;
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		ereport(LOG, (errmsg("jobq-helper with PID %d %s", (int) leaving_pid, wait_result_to_str(status))));
	leaving_pid = 0;
	return true;
}

bool
helper_ready(void)
{
	if (helper_fd != PGINVALID_SOCKET)
		return true;
	if (PostmasterPid == 1 && !jobq_allow_exec_under_pid1)
	{
		set_helper_trouble("the postmaster is process 1: run the container with an init process, "
					"or set jobq.allow_exec_under_pid1");
		retry_at = DT_NOEND;
		return false;
	}
	if (!old_one_has_left())
	{
		/* it hangs: later than soon, so that jobs without a tool are claimed */
		bool		hangs = mono_exceeds(leaving_since, mono_now(), 2 * LEAVE_MS);

		retry_at = mono_now() + (hangs ? HANGS_MS : RETRY_MIN_MS) * INT64CONST(1000);
		return false;
	}
	if (retry_at != DT_NOEND && retry_at > mono_now())
		return false;
	replace_helper = false;
	if (!start())
	{
		retry_later();
		set_helper_trouble("jobq-helper can't be started: see the server log");
		return false;
	}
	retry_at = 0;
	set_helper_trouble("");
	return true;
}

MonoTime
helper_retry_at(void)
{
	return retry_at;
}

void
helper_close(const char *why)
{
	if (helper_fd == PGINVALID_SOCKET)
		return;
	if (why)
	{
		ereport(LOG, (errmsg("jobq-helper with PID %d is lost: %s", (int) helper_pid, why)));
		if (!MySlot->dismissed) /* else no helper is started that would reset it */
			set_helper_trouble("jobq-helper was lost and is started again");
		if (mono_exceeds(started_at, mono_now(), HEALTHY_MS))
			losses = 0;
		retry_later();
		replace_helper = true;
	}
	closesocket(helper_fd);
	ReleaseExternalFD();
	helper_fd = PGINVALID_SOCKET;
	frame_buf_free(&out);
	frame_decoder_free(&in);
	leaving_pid = helper_pid;
	leaving_since = mono_now();
	helper_pid = 0;
	(void) old_one_has_left();
}

/* ---------- frames ---------- */

bool
helper_was_heard(void)
{
	return heard;
}

pgsocket
helper_socket(void)
{
	return helper_fd;
}

bool
helper_has_output(void)
{
	return helper_fd != PGINVALID_SOCKET && frame_pending(&out) > 0;
}

static Size
start_size(const FrameStart *s)
{
	return (Size) s->argv.len + s->env.len + s->tool_path.len + s->stdin_data.len + 1024;
}

bool
helper_queue(const Frame *frame, Size answer)
{
	errno = E2BIG;
	if (helper_fd == PGINVALID_SOCKET)
		return false;
	if (frame->type == FRAME_START)
	{
		Size		need = Max(start_size(&frame->u.start), answer);

		if (need > FRAME_MAX_LIMIT)
			return false;
		if (need > max_frame && !send_hello((uint32) need))
			return false;
	}
	return append_frame(frame);
}

void
helper_send(void)
{
	if (!helper_has_output())
		return;
	switch (frame_send(&out, helper_fd))
	{
		case FRAME_IO_DONE:
		case FRAME_IO_AGAIN:
			break;
		case FRAME_IO_EOF:
		case FRAME_IO_ERROR:
			/*
			 * received bytes are still in the socket: reading finds the end of
			 * file
			 */
			frame_buf_free(&out);
			break;
	}
}

/* Passes each complete frame to got. */
static bool
take_frames(void (*got) (const Frame *frame))
{
	Frame		frame;

	for (;;)
	{
		switch (frame_decoder_next(&in, &frame))
		{
			case FRAME_MORE:
				return true;
			case FRAME_READY:
				got(&frame);
				break;
			case FRAME_BAD:
				helper_close(in.error ? in.error : "malformed frame");
				return false;
		}
	}
}

bool
helper_receive(void (*got) (const Frame *frame))
{
	int			i;

	if (helper_fd == PGINVALID_SOCKET)
		return false;
	for (i = 0; i < READS_A_TURN; i++)
	{
		switch (frame_recv(&in, helper_fd))
		{
			case FRAME_IO_DONE:
				pinged = false;
				heard = true;
				if (!take_frames(got))
					return false;
				break;
			case FRAME_IO_AGAIN:
				return true;
			case FRAME_IO_EOF:
				helper_close("it has closed its socket");
				return false;
			case FRAME_IO_ERROR:
				helper_close(strerror(errno));
				return false;
		}
	}
	SetLatch(MyLatch);			/* read more after the other work of the
								 * turn */
	return true;
}

/* ---------- health check ---------- */

void
helper_kill(const char *why)
{
	if (helper_fd == PGINVALID_SOCKET || helper_killed)
		return;
	ereport(LOG, (errmsg("jobq-helper with PID %d is killed: %s", (int) helper_pid, why)));
	kill(helper_pid, SIGKILL);
	helper_killed = true;
}

/* Counts an unanswered PING. Returns false if the helper is given up. */
static bool
note_miss(MonoTime now)
{
	if (helper_killed)
	{
		helper_close("it does not end");
		return false;
	}
	if (++misses < MAX_MISSES)
		return true;
	helper_kill(psprintf("it has not answered for %d s", MAX_MISSES * LOOK_MS / 1000));
	/* its socket reaches end of file by then */
	look_at = now + LEAVE_MS * INT64CONST(1000);
	return true;
}

bool
helper_watch(bool has_jobs)
{
	Frame		ping = {.type = FRAME_PING};
	MonoTime	now = mono_now();

	if (helper_fd == PGINVALID_SOCKET || !has_jobs)
	{
		look_at = 0;
		return true;
	}
	if (look_at == 0)
	{
		pinged = false;
		look_at = now + LOOK_MS * INT64CONST(1000);
	}
	if (now < look_at)
		return true;
	look_at = now + LOOK_MS * INT64CONST(1000);
	if (pinged || helper_killed)
		return note_miss(now);
	misses = 0;
	pinged = helper_queue(&ping, 0);
	return true;
}

long
helper_watch_in(void)
{
	if (helper_fd == PGINVALID_SOCKET || look_at == 0)
		return -1;
	return mono_ms_left(mono_now(), look_at);
}

void
helper_replace(void)
{
	if (!replace_helper || retry_at > mono_now())
		return;
	(void) helper_ready();
}

MonoTime
helper_replace_at(void)
{
	return replace_helper ? retry_at : DT_NOEND;
}
