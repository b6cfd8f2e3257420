/*
 * helper.h
 *	  The inside of jobq-helper: one Helper, its Jobs, and who does what.
 *
 *	 main.c			arguments, exit status
 *	 setup.c		what the process sheds and arms before anything else
 *	 supervisor.c	the poll loop; frames in and out; children that have died
 *	 job.c			the life of one job, from START to EXIT
 *	 job_pipes.c		its pipes
 *	 launch.c		orders to start a tool
 *	 starter.c		processes that carry them out: clone and exec
 *	 program.c		which file a command executes
 *	 trust.c		whether only root and the server's user can change it
 *	 tree.c			finding and killing everything that a tool has started
 *	 output_capture.c		what is kept of stdout and stderr
 *	 progress.c		lines of descriptor 3
 *	 warm.c			instances that run one job after another
 *	 answer.c		what these write
 *	 limits.c		which limit a tool has run into
 *	 stall.c		tools that are silent for too long
 *	 workdir.c		private directories
 *	 cleaner.c		their removal, and what dead helpers left
 *	 cgroup.c		cgroups of tools, where there may be any
 *
 * A job's state is changed by job.c only:
 *
 *	 STARTING				it begins so: a starter is at it
 *	 STARTING -> RUNNING	exec has succeeded
 *	 STARTING -> ENDED		it has not, or it takes too long: EXIT is queued
 *	 RUNNING -> DRAINING	the main process has ended
 *	 DRAINING -> SWEEPING	its pipes are at their end, or quiet, or it takes too long
 *	 SWEEPING -> ENDED		nothing is left of its process tree; EXIT is queued
 *	 RUNNING -> STUCK		KILL does not end the main process; EXIT is queued
 *	 STUCK -> ENDED			it has ended after all; until then it keeps its place
 *
 * A warm instance is a Job that lives on: while it is RUNNING its number is that of the job it has, or NO_JOB.
 */
#ifndef JOBQ_HELPER_H
#define JOBQ_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "frame.h"
#include "program.h"

#define MAX_JOBS		256
#define MAX_LISTED		4096	/* processes looked at in one pass over a tree */
#define JOB_PIPES		4
#define JOB_POLLS		5		/* its pipes, or the socket of its starter */
#define JOB_FDS			5		/* with that of its work directory */
#define SPARE_FDS		48		/* ours, and those of a tool being started */
#define IO_STEP			65536	/* bytes read at once */
#define MAX_STDERR_LINE 8192	/* of an event */
#define EVENTS_HIGH		(1024 * 1024)	/* queued: tools' events wait */
#define QUEUE_HIGH		(16 * 1024 * 1024)	/* queued: the worker's frames wait */
#define MAX_GRACE_US	UINT64_C(86400000000)
#define DRAIN_QUIET_US	UINT64_C(250000)
#define DRAIN_MAX_US	UINT64_C(2000000)
#define SWEEP_MAX_US	UINT64_C(5000000)
#define START_MAX_US	UINT64_C(60000000)
#define STARTS_AT_ONCE	4		/* a starter may have to wait for a CPU behind the tool it has started */
#define START_WAIT_MS	50		/* one that takes longer does not count as one of them any more */
#define START_HANGS_US	UINT64_C(2000000)	/* one that is to be stopped is given up */
#define SWEEP_AGAIN_US	UINT64_C(20000)
#define MAX_SPARES		64		/* empty work directories kept open */
#define FEW_SPARES		4		/* of SPARE_FDS, where descriptors are short */
#define LEAVE_MAX_US	UINT64_C(4000000)
#define NEVER			UINT64_MAX
#define NO_JOB			UINT64_MAX
#define NOTE_ERROR		100		/* of a line of descriptor 3, beside FrameEventKind: kept for EXIT */
#define MAX_RETRY_AFTER 1e9		/* seconds */
#define DIR_FLAGS		(O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* Runs on the stack of a child that never returns from there: marks of a sanitizer would stay in our memory. */
#define IN_CHILD		__attribute__((no_sanitize_address))

/* As the kernel gives it; no allocation, which readdir needs. */
struct linux_dirent64
{
	uint64_t	d_ino;
	int64_t		d_off;
	unsigned short d_reclen;
	unsigned char d_type;
	char		d_name[];
};

/* True for the two entries that every directory has. */
static inline bool
is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* The last bytes of a stream. */
typedef struct Ring
{
	char	   *data;			/* made with the first byte */
	size_t		size;
	uint64_t	total;			/* all that was ever written; total % size is next */
} Ring;

/* The first bytes of a stream. */
typedef struct Capture
{
	char	   *data;
	size_t		len;
	size_t		cap;
	size_t		max;
	uint64_t	total;
	bool		failed;			/* no memory: treated as over the limit */
	const char *name;			/* in messages; NULL: stdout */
} Capture;

/* A stream cut into lines; longer ones are reported once, as too long. */
typedef struct Lines
{
	char	   *data;			/* max bytes, made with the first byte */
	size_t		len;
	size_t		max;
	bool		overlong;		/* the rest of this line is thrown away */
} Lines;

typedef void (*LineHandler) (void *arg, const char *line, size_t len, bool overlong);

typedef enum JobState
{
	JOB_STARTING,
	JOB_RUNNING,
	JOB_DRAINING,
	JOB_SWEEPING,
	JOB_STUCK,
	JOB_ENDED
} JobState;

typedef enum JobFd
{
	FD_STDIN,
	FD_STDOUT,
	FD_STDERR,
	FD_NOTES					/* the tool's descriptor 3 */
} JobFd;

/* A process that starts tools.  launch.c */
typedef struct Starter Starter;

/* Jobs of one type: those that wait for an instance.  warm.c */
typedef struct Pool Pool;

typedef struct Job
{
	uint64_t	number;			/* NO_JOB: an instance between two */
	JobState	state;
	pid_t		pid;			/* main process; 0 once it is reaped */
	pid_t		session;		/* what its pid was */
	rlim_t		tag;			/* tree.c; 0: none, the session tells */
	char		dir[32];		/* name of the work directory, "" when it is gone */
	int			dir_fd;			/* -1: closed */
	char	   *name;			/* argv[0], for messages */
	Starter    *starter;		/* JOB_STARTING: who is at it */
	int			fd[JOB_PIPES];	/* our ends by JobFd, -1: closed */
	char	   *stdin_data;
	size_t		stdin_len;
	size_t		stdin_sent;
	Capture		out;
	Ring		err;
	Lines		err_lines;
	Lines		notes;
	uint32_t	log_lines;		/* lines of stderr still to be sent */
	uint32_t	bad_lines;
	Capture		error;			/* the last line of descriptor 3 with that key */
	uint8_t		output;			/* FrameOutputKind */
	uint64_t	started;		/* monotonic, us */
	uint64_t	ended;
	uint64_t	deadline;		/* NEVER: none */
	uint64_t	kill_grace;
	uint64_t	kill_at;		/* after TERM: when KILL follows */
	uint64_t	last_byte;		/* of any pipe */
	uint64_t	stall;			/* so long after that it is stopped, 0: never */
	uint64_t	look_at;		/* stall.c */
	uint64_t	sweep_since;
	uint8_t		stop;			/* FrameStopReason, 0: runs freely */
	bool		killed;			/* KILL has been sent */
	uint64_t	killed_at;
	int			status;			/* of wait */
	struct rusage usage;
	uint32_t	left;			/* processes killed after the end */
	uint32_t	alive;			/* of them, seen in the last pass */
	uint64_t	memory_max;		/* what it was given, to tell which it has hit; 0: also when its cgroup has it */
	uint32_t	cpu_seconds;
	char		cgroup[24];		/* name of its cgroup, "" when there is none */
	bool		oom;			/* which ran out of memory */

	/* a warm instance */
	Pool	   *pool;			/* NULL: it is none */
	bool		leaving;		/* it gets no more jobs */
	uint32_t	served;			/* jobs */
	uint64_t	idle_since;
	char		id[FRAME_MAX_ID + 1];	/* of its job */
	Lines		answers;
} Job;

typedef struct Helper
{
	int			sock;			/* -1: closed */
	int			signals;		/* signalfd */
	pid_t		pid;
	bool		greeted;		/* HELLO has come */
	uint8_t		version;		/* its version: that of all frames, both ways */
	bool		closing;		/* no more jobs; leave when there is none left */
	bool		lost;			/* the worker is gone */
	uint64_t	leave_by;
	int			status;			/* exit status */
	uint32_t	max_frame;
	FrameDecoder in;
	FrameBuf	out;
	int			njobs;
	int			max_jobs;
	Job		   *jobs[MAX_JOBS];
	Starter    *starters;
	bool		starters_left;	/* some of them have been left behind */
	Pool	   *pools;
	int			waiting;		/* jobs that wait for a warm instance */
	bool		untidy;			/* a pool may be of no use any more */
	int			base_fd;		/* directory of all helpers' directories */
	int			run_fd;			/* ours below it */
	char	   *base_path;
	char		run_name[64];
	const char *cgroup_named;	/* where cgroups are to be made; NULL: where one is delegated to us */
	int			cgroup_base_fd; /* there, -1: tools have none */
	int			cgroup_fd;		/* ours below it */
	char		cgroup_name[NAME_MAX + 1];
	bool		cgroup_memory;	/* they can limit it */
	uint64_t	cgroup_count;	/* they are numbered */
	pid_t		cleaner;		/* child that removes directories, 0: none */
	bool		trash;			/* it has not seen all of them */
	uint64_t	trash_count;
	uint64_t	dir_count;		/* directories are numbered */
	int			max_spares;
	int			spares;			/* empty ones kept for the next tools */
	struct
	{
		uint64_t	number;
		int			fd;
	}			spare[MAX_SPARES];
	bool		childless;		/* as the last look at our children said */
	int			oom_fd;			/* oom_score_adj of ours, -1: tools get no other */
	char		oom_score[16];	/* what it says */
	uint64_t	tag_count;
	rlim_t		tag_base;		/* 0: no tags here */
	struct rlimit nofile;		/* as we were started, for tools */
} Helper;

/* setup.c */
extern bool setup_process(Helper *h, long parent_pid);

/* log_and_clock.c */
extern uint64_t now_us(void);
extern uint64_t after_us(uint64_t now, uint64_t delay);
extern void complain(const char *format,...) __attribute__((format(printf, 1, 2)));

/* close_from.c */
extern void close_from(int first);

/* supervisor.c */
extern int	supervise(Helper *h);

/* send_frame.c */
extern void send_frame(Helper *h, const Frame *frame);

/* job.c */
extern void job_start(Helper *h, const FrameStart *start);
/* Begins its start and adds it to the helper's; NULL, or JOB_ENDED: it could not be started, and that has been told. */
extern Job *job_launch(Helper *h, const FrameStart *start, Pool *pool);
extern void job_refuse(Helper *h, uint64_t number, FrameExitKind kind, const char *why);
extern void job_stop(Helper *h, Job *job, FrameStopReason reason, uint64_t grace_us);
extern bool job_is_over_output(const Job *job);
extern void job_kill(Helper *h, Job *job);
/* When its starter answers within that time; -1: waits for it. */
extern void job_take_start(Helper *h, Job *job, int wait_ms);
extern void job_main_ended(Helper *h, Job *job, int status, const struct rusage *usage);
extern uint64_t job_next_time(const Job *job);
extern void job_tick(Helper *h, Job *job, uint64_t now);
extern void job_swept(Helper *h, Job *job);
extern void job_free(Job *job);

/* job_pipes.c */
extern void job_polls(Helper *h, Job *job, struct pollfd *polls);
extern void job_io(Helper *h, Job *job, const struct pollfd *polls);
extern void job_read_rest(Helper *h, Job *job);
extern bool job_write_stdin(Job *job);
extern void job_end_lines(Helper *h, Job *job);
extern void job_close_fd(Job *job, JobFd which);
/* True if descriptor 3 has bytes that are not read, since the worker does not take events. */
extern bool job_holds_notes(const Helper *h, const Job *job);

/* launch.c: 0: a starter is at it, or an errno with *what telling the step that failed */
extern int	launch(Helper *h, Job *job, const FrameStart *start, const char **what);

typedef struct LaunchResult
{
	int			error;			/* errno, 0: the tool runs */
	const char *what;			/* the step that failed, "": what the error says */
	bool		missing;		/* ENOENT is about what its first line names */
	bool		unnamed;		/* its name leads to no path */
} LaunchResult;

/* false: the starter has not answered in that time; -1: waits for it.  After true it has nothing to do with the job any more. */
extern bool launch_answer(Helper *h, Job *job, int wait_ms, LaunchResult *result);
extern void launch_give_up(Helper *h, Job *job);	/* leaves the starter behind */
extern int	launch_fd(const Job *job);	/* readable when it has answered, -1: none is at it */
extern pid_t launch_pid(const Job *job);	/* of a tool that is being started, 0: none */
extern bool launch_knows(const Helper *h, pid_t pid);	/* a starter, or a tool that is being started */
extern void launch_tidy(Helper *h);

/* tree.c */
extern bool tree_use_scan;		/* no children files in /proc: look at every process */
extern void tree_setup(Helper *h);
extern int	tree_descendants(pid_t root, pid_t *pids, int count, int max);
extern rlim_t tree_new_tag(Helper *h);
extern Job *tree_owner(Helper *h, pid_t pid);
extern void tree_signal(Helper *h, Job *job, int sig);
extern void tree_sweep(Helper *h);

/* output_capture.c */
extern void capture_add(Capture *c, const char *data, size_t len);
extern bool capture_is_over(const Capture *c);
extern void ring_add(Ring *r, const char *data, size_t len);
extern size_t ring_read(const Ring *r, char *out);	/* out: size bytes; oldest first */
extern void lines_add(Lines *l, const char *data, size_t len, LineHandler handler, void *arg);
extern void lines_end(Lines *l, LineHandler handler, void *arg);

/* result: of json_check */
extern FrameVerdict verdict_of(int result);

/* Judges what the tool wrote; the texts are malloc'd: output_free. */
extern bool output_judge(const Capture *c, FrameOutputKind kind, FrameExit *result);
extern bool output_tail(const Ring *r, FrameExit *result);
extern void output_cut(FrameExit *result);
extern void output_free(FrameExit *result);

/* limits.c: which limit made a tool that has failed do so, as far as one can tell */
extern FrameLimit limit_hit(const Job *job, const FrameExit *result);

/* stall.c */
extern void stall_begin(Job *job, uint64_t now);
extern uint64_t stall_next_time(const Job *job);
extern void stall_tick(Helper *h, Job *job, uint64_t now);

/* warm.c */
extern void warm_start(Helper *h, const FrameStart *start);
extern bool warm_is_waiting(const Helper *h, uint64_t number);
extern bool warm_cancel(Helper *h, uint64_t number);	/* false: it does not wait */
extern void warm_cancel_all(Helper *h);
extern void warm_serve(Helper *h);	/* gives those that wait to instances */
extern void warm_read(Helper *h, Job *job, const char *data, size_t len);
extern void warm_ended(Job *job);	/* its process has */
extern uint64_t warm_next_time(const Job *job);
extern void warm_tick(Helper *h, Job *job, uint64_t now);
extern void warm_tidy(Helper *h);

/* answer.c: is line the answer to the job of that id?  *why: malloc'd unless OK */
extern FrameVerdict answer_check(const char *line, size_t len, size_t max, const char *id, char **why);

/* progress.c */
/* The object's "id" is this text. */
extern bool line_has_id(const char *line, size_t len, const char *id);
/* false: bad; kind: FrameEventKind, NOTE_ERROR, or 0: nothing of ours. */
extern bool progress_kind(const char *line, size_t len, uint8_t *kind);

/* workdir.c */
extern bool workdir_open(Helper *h, FrameText base);
extern bool workdir_make(Helper *h, Job *job);	/* false: errno */
extern void workdir_drop(Helper *h, Job *job);
extern void workdir_clean(Helper *h);	/* starts the cleaner when there is something to do */
extern void workdir_close(Helper *h);

/* cgroup.c */
extern void cgroup_open(Helper *h);
extern void cgroup_close(Helper *h);
extern int	cgroup_make(Helper *h, Job *job);	/* its descriptor; -1: errno */
extern pid_t cgroup_clone(int cgroup, uint64_t flags, volatile pid_t *pid);
extern void cgroup_kill(const Helper *h, const Job *job);
extern bool cgroup_drop(Helper *h, Job *job);	/* false: somebody is left in it */
extern void cgroup_sweep(const Helper *h);

/* orphans.c */
extern void end_orphans(const Helper *h);

/* cleaner.c */
extern void kill_leftovers(const Helper *h, const char *run);	/* what the tools of that dead helper have left */
extern void run_cleaner(Helper *h, bool first) __attribute__((noreturn));	/* in the child */
extern bool remove_tree(int parent, const char *name);

#endif
