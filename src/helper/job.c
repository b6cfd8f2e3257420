/*
 * job.c
 *	  Moves a job through its states, from START to EXIT (helper.h).
 *
 * A tool has ended when its main process has.  The helper does not wait for
 * the end of its pipes, because leftover processes may keep them open.  It
 * drains the pipes for a moment and kills the rest of the process tree.  EXIT
 * is sent when nothing is left.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper.h"
#include "utf8.h"

#define MAX_STDERR_TAIL (1024 * 1024)
#define SHOWN_NAME 512

static void
set_state(Job *job, JobState state)
{
	job->state = state;
}

void
job_free(Job *job)
{
	int			i;

	for (i = 0; i < JOB_PIPES; i++)
		job_close_fd(job, i);
	if (job->dir_fd >= 0)
		close(job->dir_fd);
	free(job->name);
	free(job->stdin_data);
	free(job->out.data);
	free(job->err.data);
	free(job->err_lines.data);
	free(job->notes.data);
	free(job->error.data);
	free(job->answers.data);
	free(job);
}

/* ---- starting ---- */

static Job *
job_new(Helper *h, const FrameStart *start, Pool *pool)
{
	Job		   *job = calloc(1, sizeof(Job));
	int			i;

	if (!job)
		return NULL;
	for (i = 0; i < JOB_PIPES; i++)
		job->fd[i] = -1;
	job->number = start->job;
	job->pool = pool;
	job->state = JOB_STARTING;
	job->dir_fd = -1;
	job->tag = tree_new_tag(h);
	job->output = start->warm > 0 ? FRAME_OUTPUT_NONE : start->output;
	job->out.max = job->output == FRAME_OUTPUT_NONE ? 0 : start->max_output;
	job->err.size = start->stderr_tail < MAX_STDERR_TAIL ? start->stderr_tail : MAX_STDERR_TAIL;
	job->err_lines.max = MAX_STDERR_LINE;
	job->notes.max = job->error.max = FRAME_MAX_LINE;
	job->memory_max = start->memory_max;
	job->cpu_seconds = start->cpu_seconds;
	job->log_lines = start->log_lines;
	job->kill_grace = start->kill_grace_us;
	job->stall = start->stall_us;
	job->started = job->last_byte = now_us();
	job->deadline = start->timeout_us ? after_us(job->started, start->timeout_us) : NEVER;
	job->kill_at = NEVER;
	job->stdin_len = start->stdin_data.len;
	job->stdin_data = malloc(job->stdin_len + 1);
	job->name = strdup(start->argv.data);
	if (job->stdin_data && job->name)
	{
		memcpy(job->stdin_data, start->stdin_data.data ? start->stdin_data.data : "", job->stdin_len);
		return job;
	}
	job_free(job);
	return NULL;
}

static const char *
reason_of(const LaunchResult *r)
{
	if (r->missing)
		return PROGRAM_NO_INTERPRETER;
	return program_error(r->error, r->unnamed);
}

/* Formats the name in one line. */
static const char *
show_name(char *shown, const char *name)
{
	size_t		n = utf8_escape_tail(shown, SHOWN_NAME - 1, name, strlen(name));

	shown[n] = '\0';
	while (n-- > 0)
		if (shown[n] == '\n')
			shown[n] = ' ';
	return shown;
}

/* Sends EXIT for a tool that did not run. */
static void
send_start_failed(Helper *h, uint64_t number, const char *name, const LaunchResult *r)
{
	Frame		frame = {0};
	char		message[1024];
	char		shown[SHOWN_NAME];

	snprintf(message, sizeof(message), "could not run \"%s\": %s%s%s", show_name(shown, name),
			 r->what, *r->what ? ": " : "", reason_of(r));
	frame.type = FRAME_EXIT;
	frame.u.exit.job = number;
	frame.u.exit.kind = FRAME_START_FAILED;
	frame.u.exit.value = r->error;
	frame.u.exit.message = frame_text(message);
	queue_frame(h, &frame);
}

/* Sends EXIT for a job that has no process. */
void
job_refuse(Helper *h, uint64_t number, FrameExitKind kind, const char *why)
{
	Frame		frame = {0};

	frame.type = FRAME_EXIT;
	frame.u.exit.job = number;
	frame.u.exit.kind = (uint8_t) kind;
	frame.u.exit.message = frame_text(why);
	queue_frame(h, &frame);
}

static void
send_started(Helper *h, const Job *job)
{
	Frame		frame = {0};

	frame.type = FRAME_STARTED;
	frame.u.started.job = job->number;
	frame.u.started.pid = (uint32_t) job->session;
	queue_frame(h, &frame);
}

/* Ends the job; its EXIT is queued. */
static void
set_ended(Helper *h, Job *job)
{
	cgroup_drop(h, job);
	workdir_drop(h, job);
	set_state(job, JOB_ENDED);
}

void
job_take_start(Helper *h, Job *job, int wait_ms)
{
	LaunchResult result;

	if (!launch_answer(h, job, wait_ms, &result))
		return;
	if (result.error == 0)
	{
		set_state(job, JOB_RUNNING);
		stall_begin(job, now_us());
		send_started(h, job);
		if (job->stop != 0)
			tree_signal(h, job, SIGTERM);
		return;
	}
	send_start_failed(h, job->number, job->name, &result);
	cgroup_kill(h, job);
	set_ended(h, job);
}

/* Sends EXIT for a job that was not launched, and frees it. */
static void
refuse_launch(Helper *h, Job *job, const FrameStart *start, const LaunchResult *why)
{
	send_start_failed(h, start->job, start->argv.data, why);
	if (job)
	{
		cgroup_drop(h, job);
		workdir_drop(h, job);
		job_free(job);
	}
}

/* Returns how long its start may take to count as short, ms. */
static int
start_moment_left(const Job *job)
{
	uint64_t	now = now_us();
	uint64_t	until = after_us(job->started, START_WAIT_MS * 1000);

	return now < until ? (int) ((until - now + 999) / 1000) : 0;
}

/* Waits until fewer than STARTS_AT_ONCE starts run. */
static void
await_starts(Helper *h)
{
	struct pollfd answers[STARTS_AT_ONCE];
	Job		   *starting[STARTS_AT_ONCE];
	int			count = 0;
	int			i;

	for (i = 0; i < h->njobs && count < STARTS_AT_ONCE; i++)
	{
		if (h->jobs[i]->state != JOB_STARTING || start_moment_left(h->jobs[i]) == 0)
			continue;
		answers[count].fd = launch_fd(h->jobs[i]);
		answers[count].events = POLLIN;
		starting[count++] = h->jobs[i];
	}
	if (count < STARTS_AT_ONCE || poll(answers, (nfds_t) count, START_WAIT_MS) <= 0)
		return;
	for (i = 0; i < count; i++)
		if (answers[i].revents != 0)
			job_take_start(h, starting[i], 0);
}

Job *
job_launch(Helper *h, const FrameStart *start, Pool *pool)
{
	LaunchResult failed = {ENOMEM, "out of memory", false, false};
	Job		   *job = NULL;

	await_starts(h);
	if (h->njobs >= h->max_jobs)
	{
		failed.what = "too many tools at once";
		failed.error = EAGAIN;
	}
	else if ((job = job_new(h, start, pool)) != NULL)
		failed.error = launch(h, job, start, &failed.what);
	if (failed.error != 0)
	{
		refuse_launch(h, job, start, &failed);
		return NULL;
	}
	h->jobs[h->njobs++] = job;
	/* no other job: handle its answer and send STARTED in one turn */
	if (h->njobs == 1 && !pool)
		job_take_start(h, job, START_WAIT_MS);
	return job;
}

void
job_start(Helper *h, const FrameStart *start)
{
	if (h->closing)
		job_refuse(h, start->job, FRAME_SHUTDOWN_KILL, "the helper is shutting down");
	else if (start->warm > 0)
		warm_start(h, start);
	else
		job_launch(h, start, NULL);
}

/* ---- EXIT ---- */

static uint64_t
us_of(const struct timeval *tv)
{
	return (uint64_t) tv->tv_sec * 1000000 + (uint64_t) tv->tv_usec;
}

/* True if it has written more than max_output. */
bool
job_is_over_output(const Job *job)
{
	return job->output != FRAME_OUTPUT_NONE && capture_is_over(&job->out);
}

static void
set_kind(const Job *job, FrameExit *result)
{
	static const uint8_t stopped[] = {0, FRAME_CANCELLED, FRAME_SHUTDOWN_KILL, FRAME_TIMEOUT,
	FRAME_OUTPUT_LIMIT, FRAME_STALLED};
	uint8_t		stop = job->stop == 0 && job_is_over_output(job) ? FRAME_STOP_OUTPUT : job->stop;
	bool		signalled = WIFSIGNALED(job->status);

	result->kind = signalled ? FRAME_SIGNALLED : FRAME_EXITED;
	result->value = signalled ? WTERMSIG(job->status) : WEXITSTATUS(job->status);
	if (stop == 0)
		return;
	result->kind = stopped[stop];
	if (stop == FRAME_STOP_OUTPUT)
		/* whether it ended before TERM came is unknown */
		result->value = 0;
	else if (signalled)
		result->value += 128;
}

static void
fill_exit(const Job *job, FrameExit *result)
{
	result->job = job->number;
	result->duration_us = job->ended - job->started;
	result->utime_us = us_of(&job->usage.ru_utime);
	result->stime_us = us_of(&job->usage.ru_stime);
	result->maxrss_kb = (uint64_t) job->usage.ru_maxrss;
	result->left_processes = job->left;
	result->bad_lines = job->bad_lines;
	result->error.data = job->error.data;
	result->error.len = (uint32_t) job->error.len;
	set_kind(job, result);
}

static void
send_exit(Helper *h, Job *job)
{
	Frame		frame = {0};

	job_end_lines(h, job);
	frame.type = FRAME_EXIT;
	if (output_judge(&job->out, job->output, &frame.u.exit) && output_tail(&job->err, &frame.u.exit))
	{
		fill_exit(job, &frame.u.exit);
		frame.u.exit.limit = (uint8_t) limit_hit(job, &frame.u.exit);
		queue_frame(h, &frame);
	}
	else
		h->out.failed = true;	/* out of memory: the loop ends */
	output_free(&frame.u.exit);
}

/* ---- ending ---- */

/* Sends EXIT for a job ended by KILL, also when KILL can't end it. */
static void
end_killed(Helper *h, Job *job)
{
	job->status = SIGKILL;
	job->ended = now_us();
	if (job->number != NO_JOB)
		send_exit(h, job);
}

/*
 * Gives up a start that hangs.  No TERM is sent: as far as visible, the tool
 * has not begun to run.
 */
static void
give_up_start(Helper *h, Job *job)
{
	char		shown[SHOWN_NAME];

	if (!h->lost)
		log_line("gave up the start of \"%s\": it hangs", show_name(shown, job->name));
	launch_give_up(h, job);
	cgroup_kill(h, job);
	h->childless = false;
	end_killed(h, job);
	set_ended(h, job);
}

void
job_kill(Helper *h, Job *job)
{
	/* it may run: then its whole tree must be killed */
	if (job->state == JOB_STARTING)
		job_take_start(h, job, start_moment_left(job));
	if (job->state == JOB_STARTING)
		give_up_start(h, job);
	if (job->state == JOB_ENDED)
		return;
	cgroup_kill(h, job);
	tree_signal(h, job, SIGKILL);
	if (!job->killed)
		job->killed_at = now_us();
	job->killed = true;
	job->kill_at = NEVER;
}

/*
 * Sends TERM to the whole tree, once it has started; KILL follows after the
 * grace.  A later call can only shorten the grace.
 */
void
job_stop(Helper *h, Job *job, FrameStopReason reason, uint64_t grace_us)
{
	uint64_t	kill_at = after_us(now_us(), grace_us < MAX_GRACE_US ? grace_us : MAX_GRACE_US);

	if (job->state > JOB_RUNNING)
		return;
	if (job->stop == 0)
	{
		job->stop = (uint8_t) reason;
		if (job->state == JOB_RUNNING)
			tree_signal(h, job, SIGTERM);
	}
	if (!job->killed && kill_at < job->kill_at)
		job->kill_at = kill_at;
}

/* Abandons the starter and reports a fault of the node. */
static void
time_out_start(Helper *h, Job *job)
{
	LaunchResult hangs = {ETIMEDOUT, "its start hangs", false, false};

	launch_give_up(h, job);
	cgroup_kill(h, job);
	send_start_failed(h, job->number, job->name, &hangs);
	set_ended(h, job);
}

/*
 * Gives up a main process that KILL does not end: it hangs in the kernel, on a
 * file system that does not answer for example.
 */
static void
give_up_main(Helper *h, Job *job)
{
	JobFd		which;

	job->left++;
	end_killed(h, job);
	job->number = NO_JOB;
	for (which = FD_STDIN; which <= FD_NOTES; which++)
		job_close_fd(job, which);
	workdir_drop(h, job);
	if (job->pool)
		warm_ended(job);
	h->pools_to_free |= job->pool != NULL;
	job->pool = NULL;
	set_state(job, JOB_STUCK);
}

static void
start_sweeping(const Helper *h, Job *job, uint64_t now)
{
	cgroup_kill(h, job);
	set_state(job, JOB_SWEEPING);
	job->sweep_since = now;
}

void
job_main_ended(Helper *h, Job *job, int status, const struct rusage *usage)
{
	job->pid = 0;
	if (job->state == JOB_STUCK)
	{
		cgroup_drop(h, job);
		set_state(job, JOB_ENDED);
		return;
	}
	job->status = status;
	job->usage = *usage;
	job->ended = now_us();
	job->last_byte = job->ended;
	job_close_fd(job, FD_STDIN);
	set_state(job, JOB_DRAINING);
	job_read_rest(h, job);
	if (job->pool)
		warm_ended(job);
}

static bool
is_drained(const Job *job, uint64_t now)
{
	if (job->fd[FD_STDOUT] < 0 && job->fd[FD_STDERR] < 0 && job->fd[FD_NOTES] < 0)
		return true;
	return now >= after_us(job->last_byte, DRAIN_QUIET_US) || now >= after_us(job->ended, DRAIN_MAX_US);
}

/* Returns when a start that was stopped is taken for one that hangs. */
static uint64_t
give_up_at(const Job *job)
{
	uint64_t	hangs = after_us(job->started, START_HANGS_US);

	if (job->stop == 0)
		return NEVER;
	return hangs < job->kill_at ? hangs : job->kill_at;
}

static uint64_t
running_next_time(const Job *job)
{
	uint64_t	next = stall_next_time(job);

	if (job->killed)
		return after_us(job->killed_at, SWEEP_MAX_US);
	if (job->kill_at < next)
		next = job->kill_at;
	if (job->pool && warm_next_time(job) < next)
		next = warm_next_time(job);
	if (job->stop == 0 && job->deadline < next)
		next = job->deadline;
	return next;
}

/* Returns when job_turn() must be called next. */
uint64_t
job_next_time(const Job *job)
{
	uint64_t	quiet = after_us(job->last_byte, DRAIN_QUIET_US);
	uint64_t	drained = after_us(job->ended, DRAIN_MAX_US);
	uint64_t	started = after_us(job->started, START_MAX_US);

	switch (job->state)
	{
		case JOB_STARTING:
			if (job->stop != 0)
				return give_up_at(job);
			return job->deadline < started ? job->deadline : started;
		case JOB_RUNNING:
			return running_next_time(job);
		case JOB_DRAINING:
			return quiet < drained ? quiet : drained;
		case JOB_SWEEPING:
			return after_us(now_us(), SWEEP_AGAIN_US);
		case JOB_STUCK:
			return NEVER;
		case JOB_ENDED:
			break;
	}
	return 0;
}

void
job_turn(Helper *h, Job *job, uint64_t now)
{
	if (job->state == JOB_DRAINING && (h->lost || is_drained(job, now)))
		start_sweeping(h, job, now);
	if (job->state == JOB_STARTING && now < job->deadline && now >= after_us(job->started, START_MAX_US))
		time_out_start(h, job);
	if (job->state > JOB_RUNNING)
		return;
	if (job->stop == 0 && now >= job->deadline)
		job_stop(h, job, FRAME_STOP_TIMEOUT, job->kill_grace);
	if (job->state == JOB_STARTING && now >= give_up_at(job))
		give_up_start(h, job);
	if (job->state != JOB_RUNNING)
		return;
	stall_turn(h, job, now);
	if (job->pool)
		warm_turn(h, job, now);
	if (now >= job->kill_at)
		job_kill(h, job);
	if (job->killed && now >= after_us(job->killed_at, SWEEP_MAX_US))
		give_up_main(h, job);
}

/*
 * Ends a job when its tree is gone, or when the tree can't be killed; then
 * EXIT counts what is left.
 */
void
job_swept(Helper *h, Job *job)
{
	if ((job->alive > 0 || !cgroup_drop(h, job)) && now_us() < after_us(job->sweep_since, SWEEP_MAX_US))
		return;
	job->left += job->alive;
	if (job->number != NO_JOB)
		send_exit(h, job);
	set_ended(h, job);
}
