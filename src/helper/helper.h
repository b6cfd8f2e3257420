/*
 * helper.h
 *	  Structures and functions that the files of jobq-helper share.
 *
 *	 main.c				arguments, exit status
 *	 setup.c			drops everything inherited, arms signals
 *	 supervisor.c		the poll loop; frames from the worker; reaps children
 *	 queue_frame.c		frames to the worker
 *	 job.c				the life of one job, from START to EXIT
 *	 job_input.c		its input
 *	 job_pipes.c		its output and events
 *	 launch.c			orders to start a tool
 *	 starter.c			processes that execute these orders: clone and exec
 *	 program.c			finds the file that a command executes
 *	 trust.c			checks that no other user can change it
 *	 tree.c				finds and kills all processes of a tool
 *	 output_capture.c	keeps the start of stdout, the tail of stderr, lines
 *	 progress.c			lines of descriptor 3
 *	 warm.c				instances that run one job after another
 *	 answer.c			checks their answers
 *	 limit_hit.c			finds the limit that a tool has hit
 *	 stall.c			stops silent tools
 *	 workdir.c			private directories
 *	 cleaner.c			removes them and the leftovers of dead helpers
 *	 orphans.c			kills helpers without a worker
 *	 cgroup.c			cgroups of tools, where possible
 *	 log_and_clock.c	log lines, monotonic time
 *	 close_from.c		closes descriptors
 *
 * Only job.c changes a job's state:
 *
 *	 STARTING				the initial state: a starter executes the order
 *	 STARTING -> RUNNING	exec has succeeded
 *	 STARTING -> ENDED		exec has failed or hangs; EXIT is queued
 *	 RUNNING -> DRAINING	the main process has ended
 *	 DRAINING -> SWEEPING	end of file on the pipes, silence, or a time limit
 *	 SWEEPING -> ENDED		the process tree is gone; EXIT is queued
 *	 RUNNING -> STUCK		KILL does not end the main process; EXIT is queued
 *	 STUCK -> ENDED			it has ended; until then it counted as a job
 *
 * A warm instance is a Job that lives on: while it is RUNNING, its number is
 * that of its current job, or NO_JOB.
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
#define MAX_LISTED		4096	/* processes looked at in one pass over a
								 * tree */
#define JOB_PIPES		4
#define JOB_POLLS		5		/* its pipes, and the socket of its starter */
#define JOB_FDS			5		/* with its work directory */
#define SPARE_FDS		48		/* the helper's, and those of a start */
#define IO_STEP			65536	/* bytes of one read */
#define MAX_STDERR_LINE 8192	/* in an event */
#define EVENTS_HIGH		(1024 * 1024)	/* queued bytes that block reads of
										 * descriptor 3 */
#define QUEUE_HIGH		(16 * 1024 * 1024)	/* queued bytes that block reads
											 * of frames */
#define MAX_GRACE_US	UINT64_C(86400000000)
#define DRAIN_QUIET_US	UINT64_C(250000)
#define DRAIN_MAX_US	UINT64_C(2000000)
#define SWEEP_MAX_US	UINT64_C(5000000)
#define START_MAX_US	UINT64_C(60000000)
#define STARTS_AT_ONCE	4		/* a starter may wait for the CPU of its
								 * tool */
#define START_WAIT_MS	50		/* a longer start does not count among them */
#define START_HANGS_US	UINT64_C(2000000)	/* a start to be stopped is
											 * given up then */
#define SWEEP_AGAIN_US	UINT64_C(20000)
#define MAX_SPARES		64		/* empty work directories for reuse */
#define FEW_SPARES		4		/* of SPARE_FDS, when descriptors are few */
#define LEAVE_MAX_US	UINT64_C(4000000)
#define NEVER			UINT64_MAX
#define NO_JOB			UINT64_MAX
#define NOTE_ERROR		100		/* kind of a line of descriptor 3, beside
								 * FrameEventKind: kept for EXIT */
#define MAX_RETRY_AFTER 1e9		/* seconds */
#define DIR_FLAGS		(O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/*
 * For functions on the stack of a child that never returns: a sanitizer's
 * marks would stay in the helper's memory.
 */
#define IN_CHILD		__attribute__((no_sanitize_address))

/*
 * A directory entry as the kernel returns it.  readdir() would allocate
 * memory.
 */
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
	char	   *data;			/* allocated with the first byte */
	size_t		size;
	uint64_t	total;			/* bytes ever written; total % size is the
								 * next position */
} Ring;

/* The first bytes of a stream. */
typedef struct Capture
{
	char	   *data;
	size_t		len;
	size_t		cap;
	size_t		max;
	uint64_t	total;
	bool		failed;			/* out of memory: treated as over the limit */
	const char *name;			/* name in messages; NULL: stdout */
} Capture;

/* A stream split into lines. A longer line is reported once, as too long. */
typedef struct Lines
{
	char	   *data;			/* max bytes, allocated with the first byte */
	size_t		len;
	size_t		max;
	bool		overlong;		/* the rest of this line is dropped */
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
	FD_NOTES					/* descriptor 3 of the tool */
} JobFd;

/* A process that starts tools (launch.c). */
typedef struct Starter Starter;

/* The instances of a job type, and the jobs that wait for one (warm.c). */
typedef struct Pool Pool;

typedef struct Job
{
	uint64_t	number;			/* NO_JOB: an instance without a job */
	JobState	state;
	pid_t		pid;			/* main process; 0 once it is reaped */
	pid_t		session;		/* pid of the main process, also when it is
								 * gone */
	rlim_t		tag;			/* tree.c; 0: none, the session identifies
								 * it */
	char		dir[32];		/* name of the work directory, "" when it is
								 * gone */
	int			dir_fd;			/* -1: closed */
	char	   *name;			/* argv[0], for messages */
	Starter    *starter;		/* JOB_STARTING: its starter */
	int			fd[JOB_PIPES];	/* the helper's ends by JobFd, -1: closed */
	char	   *stdin_data;
	size_t		stdin_len;
	size_t		stdin_sent;
	Capture		out;
	Ring		err;
	Lines		err_lines;
	Lines		notes;
	uint32_t	log_lines;		/* lines of stderr still to send */
	uint32_t	bad_lines;
	Capture		error;			/* the last error line of descriptor 3 */
	uint8_t		output;			/* FrameOutputKind */
	uint64_t	started;		/* monotonic, us */
	uint64_t	ended;
	uint64_t	deadline;		/* NEVER: none */
	uint64_t	kill_grace;
	uint64_t	kill_at;		/* after TERM: time of KILL */
	uint64_t	last_byte;		/* time of the last byte on any pipe */
	uint64_t	stall;			/* maximal silence, 0: no limit */
	uint64_t	look_at;		/* stall.c */
	uint64_t	sweep_since;
	uint8_t		stop;			/* FrameStopReason, 0: not stopped */
	bool		killed;			/* KILL has been sent */
	uint64_t	killed_at;
	int			status;			/* status of wait4 */
	struct rusage usage;
	uint32_t	left;			/* processes killed after its end */
	uint32_t	alive;			/* of these, seen in the last sweep */
	uint64_t	memory_max;		/* its limit; 0: none, or the cgroup has it */
	uint32_t	cpu_seconds;
	char		cgroup[24];		/* name of its cgroup, "" without one */
	bool		oom;			/* the cgroup ran out of memory */

	/* a warm instance */
	Pool	   *pool;			/* NULL: no instance */
	bool		leaving;		/* gets no more jobs */
	uint32_t	served;			/* number of jobs */
	uint64_t	idle_since;
	char		id[FRAME_MAX_ID + 1];	/* id of its job */
	Lines		answers;
} Job;

typedef struct Helper
{
	int			sock;			/* -1: closed */
	int			signals;		/* signalfd */
	pid_t		pid;
	bool		greeted;		/* HELLO has come */
	bool		closing;		/* no more jobs; exit when none is left */
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
	bool		starters_abandoned;	/* some of them are abandoned */
	Pool	   *pools;
	int			waiting;		/* jobs waiting for a warm instance */
	bool		pools_to_free;	/* warm_free_pools() may find unused pools */
	int			base_fd;		/* directory of all helpers' directories */
	int			run_fd;			/* the helper's own below it */
	char	   *base_path;
	char		run_name[64];
	const char *cgroup_named;	/* jobq.tool_cgroup; NULL: a delegated
								 * cgroup */
	int			cgroup_base_fd; /* parent of helpers' cgroups, -1: tools
								 * have none */
	int			cgroup_fd;		/* the helper's own below it */
	char		cgroup_name[NAME_MAX + 1];
	bool		cgroup_memory;	/* the memory controller is on */
	uint64_t	cgroup_count;	/* number of the next cgroup */
	pid_t		cleaner;		/* child that removes directories, 0: none */
	bool		trash;			/* directories wait for a cleaner */
	uint64_t	trash_count;
	uint64_t	dir_count;		/* number of the next directory */
	int			max_spares;
	int			spares;			/* empty directories for the next tools */
	struct
	{
		uint64_t	number;
		int			fd;
	}			spare[MAX_SPARES];
	bool		childless;		/* no children, as of the last waitid */
	int			oom_fd;			/* the helper's oom_score_adj, -1: unchanged
								 * for tools */
	char		oom_score[16];	/* its value */
	uint64_t	tag_count;
	rlim_t		tag_base;		/* 0: no tags */
	struct rlimit nofile;		/* as inherited, for tools */
} Helper;

/* setup.c */
extern bool setup_process(Helper *h, long parent_pid);

/* log_and_clock.c */
extern uint64_t now_us(void);
extern uint64_t after_us(uint64_t now, uint64_t delay);
extern void log_line(const char *format,...) __attribute__((format(printf, 1, 2)));

/* close_from.c */
extern void close_from(int first);

/* supervisor.c */
extern int	supervise(Helper *h);

/* queue_frame.c */
extern void queue_frame(Helper *h, const Frame *frame);

/* job.c */
extern void job_start(Helper *h, const FrameStart *start);
/*
 * Begins the start and adds the job to h->jobs.  NULL, or a job in JOB_ENDED:
 * the start failed, and EXIT is queued.
 */
extern Job *job_launch(Helper *h, const FrameStart *start, Pool *pool);
extern void job_refuse(Helper *h, uint64_t number, FrameExitKind kind, const char *why);
extern void job_stop(Helper *h, Job *job, FrameStopReason reason, uint64_t grace_us);
extern bool job_is_over_output(const Job *job);
extern void job_kill(Helper *h, Job *job);
/* Handles the starter's answer if it comes in wait_ms; -1: no limit. */
extern void job_take_start(Helper *h, Job *job, int wait_ms);
extern void job_main_ended(Helper *h, Job *job, int status, const struct rusage *usage);
extern uint64_t job_next_time(const Job *job);
extern void job_turn(Helper *h, Job *job, uint64_t now);
extern void job_swept(Helper *h, Job *job);
extern void job_free(Job *job);

/* job_input.c */
extern bool job_write_stdin(Job *job);
extern void job_close_fd(Job *job, JobFd which);

/* job_pipes.c */
extern void job_polls(Helper *h, Job *job, struct pollfd *polls);
extern void job_io(Helper *h, Job *job, const struct pollfd *polls);
extern void job_read_rest(Helper *h, Job *job);
extern void job_end_lines(Helper *h, Job *job);
/*
 * True if descriptor 3 has bytes that are not read, because the worker does
 * not take events.
 */
extern bool job_holds_notes(const Helper *h, const Job *job);

/*
 * launch.c: returns 0 if a starter has the order, or an errno with the failed
 * step in *what
 */
extern int	launch(Helper *h, Job *job, const FrameStart *start, const char **what);

typedef struct LaunchResult
{
	int			error;			/* errno, 0: the tool runs */
	const char *what;			/* the failed step, "": the error says all */
	bool		missing;		/* ENOENT is about the interpreter */
	bool		unnamed;		/* the name leads to no path */
} LaunchResult;

/*
 * Returns false if the starter has not answered in wait_ms (-1: no limit).
 * After true the starter is free.
 */
extern bool launch_answer(Helper *h, Job *job, int wait_ms, LaunchResult *result);
extern void launch_give_up(Helper *h, Job *job);	/* abandons the starter */
extern int	launch_fd(const Job *job);	/* readable when it has answered,
										 * -1: no starter */
extern pid_t launch_pid(const Job *job);	/* of a tool that is starting,
											 * 0: none */
/* True for a starter, and for a tool that is starting. */
extern bool launch_knows(const Helper *h, pid_t pid);
extern void launch_reap(Helper *h);
/* Closes the sockets of all starters, in a child. */
extern void launch_close(Helper *h);

/* tree.c */
extern bool tree_use_scan;		/* no children files in /proc: read every
								 * process */
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
/*
 * Copies the bytes, oldest first, to out, which has room for r->size.  Returns
 * their number.
 */
extern size_t ring_read(const Ring *r, char *out);
extern void lines_add(Lines *l, const char *data, size_t len, LineHandler handler, void *arg);
extern void lines_end(Lines *l, LineHandler handler, void *arg);

/* result: of json_check */
extern FrameVerdict verdict_of(int result);

/*
 * Sets verdict and output of the frame.  The texts are malloc'd:
 * output_free().
 */
extern bool output_judge(const Capture *c, FrameOutputKind kind, FrameExit *result);
extern bool output_tail(const Ring *r, FrameExit *result);
extern void output_cut(FrameExit *result);
extern void output_free(FrameExit *result);

/* limit_hit.c: returns the limit that probably made a tool fail */
extern FrameLimit limit_hit(const Job *job, const FrameExit *result);

/* stall.c */
extern void stall_begin(Job *job, uint64_t now);
extern uint64_t stall_next_time(const Job *job);
extern void stall_turn(Helper *h, Job *job, uint64_t now);

/* warm.c */
extern void warm_start(Helper *h, const FrameStart *start);
extern bool warm_is_waiting(const Helper *h, uint64_t number);
/* Returns false if the job does not wait. */
extern bool warm_cancel(Helper *h, uint64_t number);
extern void warm_cancel_all(Helper *h);
extern void warm_serve(Helper *h);	/* assigns waiting jobs to instances */
extern void warm_read(Helper *h, Job *job, const char *data, size_t len);
extern void warm_ended(Job *job);	/* its process has ended */
extern uint64_t warm_next_time(const Job *job);
extern void warm_turn(Helper *h, Job *job, uint64_t now);
extern void warm_free_pools(Helper *h);

/*
 * answer.c: checks that line answers the job of that id.  *why: malloc'd, NULL
 * if OK
 */
extern FrameVerdict answer_check(const char *line, size_t len, size_t max, const char *id, char **why);

/* progress.c */
/* True if the object's "id" is this text. */
extern bool line_has_id(const char *line, size_t len, const char *id);
/*
 * Returns false for a malformed line.  kind: FrameEventKind, NOTE_ERROR, or 0:
 * no key of jobq's.
 */
extern bool progress_kind(const char *line, size_t len, uint8_t *kind);

/* workdir.c */
extern bool workdir_open(Helper *h, FrameText base);
extern bool workdir_make(Helper *h, Job *job);	/* false: errno */
extern void workdir_drop(Helper *h, Job *job);
extern void workdir_clean(Helper *h);	/* starts a cleaner if directories
										 * wait for it */
extern void workdir_close(Helper *h);

/* cgroup.c */
extern void cgroup_open(Helper *h);
extern void cgroup_close(Helper *h);
extern int	cgroup_make(Helper *h, Job *job);	/* its descriptor; -1: errno */
extern pid_t cgroup_clone(int cgroup, uint64_t flags, volatile pid_t *pid);
extern void cgroup_kill(const Helper *h, const Job *job);
extern bool cgroup_drop(Helper *h, Job *job);	/* false: a process is left
												 * in it */
extern void cgroup_sweep(const Helper *h);

/* orphans.c */
extern void end_orphans(const Helper *h);

/* cleaner.c */
/* Kills the leftovers of the tools of that dead helper. */
extern void kill_leftovers(const Helper *h, const char *run);
/* Runs in the cleaner. */
extern void run_cleaner(Helper *h, bool first) __attribute__((noreturn));
extern bool remove_tree(int parent, const char *name);

#endif
