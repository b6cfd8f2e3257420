/*
 * warm.c
 *	  Warm tools: processes that run one job after another, each a line in and
 *	  a line out.
 *
 * A Pool is a job type with its instances, which are Jobs that live on
 * (helper.h), and its waiting jobs.  An instance is started when a job finds
 * none idle and there are fewer than START allows.  It has one job at a time.
 * It is replaced (it exits and the next job may start another)
 *
 *	 at once		when a line answers no job, or comes without a job: killed
 *	 after a job	when it has served its number of jobs, holds too much
 *					memory, has another configuration, or has answered
 *					before its whole line was written: its stdin is
 *					closed, and after the grace it is killed
 *
 * A job's time limit or cancel ends its instance like any tool (job.c). All
 * instances exit when their pool has had no job for a while.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "helper.h"

#define ENVELOPE 256			/* bytes of an answer beside its result */

typedef struct Waiting
{
	struct Waiting *next;
	uint64_t	number;
	uint64_t	timeout_us;
	char		id[FRAME_MAX_ID + 1];
	size_t		len;			/* of line, with its newline */
	char		line[];
} Waiting;

struct Pool
{
	Pool	   *next;
	uint64_t	id;
	FrameBuf	config;			/* the START of its jobs without fields of a
								 * single job */
	FrameStart	start;			/* the same, decoded; points into config */
	int			instances;		/* instances that may get jobs */
	uint64_t	last_used;
	Waiting    *first;
	Waiting   **end;
};

/* ---- pools ---- */

static Pool *
find_pool(Helper *h, uint64_t id)
{
	Pool	   *pool = h->pools;

	while (pool && pool->id != id)
		pool = pool->next;
	if (pool)
		return pool;
	pool = calloc(1, sizeof(Pool));
	if (!pool)
		return NULL;
	pool->id = id;
	pool->end = &pool->first;
	pool->next = h->pools;
	h->pools = pool;
	return pool;
}

/*
 * Retires an instance: it gets no more jobs.  Once it has none, its input
 * ends, and it has the grace to exit by itself.  Called again when it has
 * answered.
 */
static void
retire(Job *job)
{
	if (!job->leaving)
		job->pool->instances--;
	job->leaving = true;
	if (job->number != NO_JOB || job->fd[FD_STDIN] < 0)
		return;
	job_close_fd(job, FD_STDIN);
	job->kill_at = after_us(now_us(), job->kill_grace);
}

static void
retire_all(Helper *h, const Pool *pool)
{
	int			i;

	for (i = 0; i < h->njobs; i++)
		if (h->jobs[i]->pool == pool && h->jobs[i]->state <= JOB_RUNNING)
			retire(h->jobs[i]);
}

/*
 * Sets the pool's configuration from a START. When it has changed, retires the
 * instances.
 */
static bool
configure(Helper *h, Pool *pool, const FrameStart *start)
{
	Frame		frame = {0};
	FrameBuf	config = {0};
	Frame		kept;

	frame.type = FRAME_START;
	frame.u.start = *start;
	frame.u.start.job = NO_JOB;
	frame.u.start.timeout_us = 0;
	frame.u.start.stdin_data.len = frame.u.start.id.len = 0;
	if (!frame_encode(&config, &frame, FRAME_MAX_LIMIT))
	{
		frame_buf_free(&config);
		return false;
	}
	if (frame_pending(&config) == frame_pending(&pool->config) &&
		memcmp(config.data, pool->config.data, frame_pending(&config)) == 0)
	{
		frame_buf_free(&config);
		return true;
	}
	retire_all(h, pool);
	frame_buf_free(&pool->config);
	pool->config = config;
	if (!frame_decode(config.data + 4, frame_pending(&config) - 4, &kept))
		return false;
	pool->start = kept.u.start;
	return true;
}

static bool
is_in_use(const Helper *h, const Pool *pool)
{
	int			i;

	for (i = 0; i < h->njobs; i++)
		if (h->jobs[i]->pool == pool)
			return true;
	return pool->first != NULL;
}

/* Frees pools without instances and jobs: a type may never be used again. */
void
warm_free_pools(Helper *h)
{
	Pool	  **link = &h->pools;

	h->pools_to_free = false;
	while (*link)
	{
		Pool	   *pool = *link;

		if (is_in_use(h, pool))
		{
			link = &pool->next;
			continue;
		}
		*link = pool->next;
		frame_buf_free(&pool->config);
		free(pool);
	}
}

/* ---- waiting jobs ---- */

static bool
add_waiting(Helper *h, Pool *pool, const FrameStart *start)
{
	Waiting    *w = malloc(sizeof(Waiting) + start->stdin_data.len + 1);

	if (!w)
		return false;
	memset(w, 0, sizeof(*w));
	w->number = start->job;
	w->timeout_us = start->timeout_us;
	if (start->id.len > 0)
		memcpy(w->id, start->id.data, start->id.len);
	if (start->stdin_data.len > 0)
		memcpy(w->line, start->stdin_data.data, start->stdin_data.len);
	w->line[start->stdin_data.len] = '\n';
	w->len = (size_t) start->stdin_data.len + 1;
	*pool->end = w;
	pool->end = &w->next;
	h->waiting++;
	return true;
}

/* Removes the waiting job at *link. */
static void
drop_waiting(Helper *h, Pool *pool, Waiting **link)
{
	Waiting    *w = *link;

	*link = w->next;
	if (pool->end == &w->next)
		pool->end = link;
	h->waiting--;
	free(w);
}

static Waiting **
find_waiting(const Helper *h, uint64_t number, Pool **pool)
{
	for (*pool = h->pools; *pool; *pool = (*pool)->next)
		for (Waiting **link = &(*pool)->first; *link; link = &(*link)->next)
			if ((*link)->number == number)
				return link;
	return NULL;
}

bool
warm_is_waiting(const Helper *h, uint64_t number)
{
	Pool	   *pool;

	return h->waiting > 0 && find_waiting(h, number, &pool) != NULL;
}

bool
warm_cancel(Helper *h, uint64_t number)
{
	Pool	   *pool;
	Waiting   **link = h->waiting > 0 ? find_waiting(h, number, &pool) : NULL;

	if (!link)
		return false;
	drop_waiting(h, pool, link);
	job_refuse(h, number, FRAME_CANCELLED, "");
	return true;
}

void
warm_cancel_all(Helper *h)
{
	for (Pool *pool = h->pools; pool; pool = pool->next)
		while (pool->first)
		{
			job_refuse(h, pool->first->number, FRAME_SHUTDOWN_KILL, "the helper is shutting down");
			drop_waiting(h, pool, &pool->first);
		}
}

void
warm_start(Helper *h, const FrameStart *start)
{
	Pool	   *pool = find_pool(h, start->pool);

	if (!pool || !configure(h, pool, start) || !add_waiting(h, pool, start))
		h->out.failed = true;	/* out of memory: the loop ends */
}

/* ---- instances ---- */

static Job *
idle_instance(const Helper *h, const Pool *pool)
{
	int			i;

	for (i = 0; i < h->njobs; i++)
	{
		Job		   *job = h->jobs[i];

		if (job->pool == pool && job->number == NO_JOB && !job->leaving && job->state == JOB_RUNNING)
			return job;
	}
	return NULL;
}

/*
 * True if another instance may start: all pools together have at most half of
 * max_jobs.  Beyond that, retires the instance that has been idle longest.
 */
static bool
room_for_instance(Helper *h)
{
	Job		   *oldest = NULL;
	int			count = 0;
	int			i;

	for (i = 0; i < h->njobs; i++)
	{
		Job		   *job = h->jobs[i];

		if (!job->pool)
			continue;
		count++;
		if (job->number == NO_JOB && !job->leaving && job->state == JOB_RUNNING &&
			(!oldest || job->idle_since < oldest->idle_since))
			oldest = job;
	}
	if (count < (h->max_jobs + 1) / 2)
		return true;
	if (oldest)
		retire(oldest);
	return false;
}

/*
 * Kills an instance that is out of step: its further output would be taken for
 * another answer.
 */
static void
discard(Helper *h, Job *job)
{
	if (!job->leaving)
		job->pool->instances--;
	job->leaving = true;
	if (job->state <= JOB_RUNNING)
		job_kill(h, job);
}

/*
 * Assigns the first waiting job of the pool to an instance.  When the instance
 * has exited or is about to, it has not read the job: then another gets it.
 */
static void
give(Helper *h, Job *job, uint64_t now)
{
	Pool	   *pool = job->pool;
	Waiting    *w = pool->first;

	job->number = w->number;
	memcpy(job->id, w->id, sizeof(job->id));
	job->started = pool->last_used = now;
	job->deadline = w->timeout_us ? after_us(now, w->timeout_us) : NEVER;
	stall_begin(job, now);
	job->log_lines = pool->start.log_lines;
	job->bad_lines = 0;
	job->error.len = 0;
	job->err.total = 0;
	job->served++;
	free(job->stdin_data);
	job->stdin_sent = 0;
	job->stdin_data = malloc(w->len);
	job->stdin_len = job->stdin_data ? w->len : 0;
	if (job->stdin_data)
		memcpy(job->stdin_data, w->line, w->len);
	else
		h->out.failed = true;
	if (job_write_stdin(job) || job->served == 1)
		drop_waiting(h, pool, &pool->first);
	else
	{
		job->number = NO_JOB;
		discard(h, job);
	}
}

/*
 * Starts an instance for the first waiting job.  Returns false if none can be
 * started now.
 */
static bool
start_instance(Helper *h, Pool *pool)
{
	FrameStart	start = pool->start;
	Job		   *job;

	if ((uint32_t) pool->instances >= start.warm || h->njobs >= h->max_jobs || !room_for_instance(h))
		return false;
	start.job = pool->first->number;
	job = job_launch(h, &start, pool);
	if (!job)
	{
		drop_waiting(h, pool, &pool->first);	/* EXIT START_FAILED is
												 * queued */
		h->pools_to_free = true;
		return true;
	}
	pool->instances++;
	job->answers.max = (size_t) start.max_output + ENVELOPE;
	give(h, job, now_us());
	return true;
}

static void
serve_pool(Helper *h, Pool *pool)
{
	uint64_t	now = now_us();

	while (pool->first)
	{
		Job		   *job = idle_instance(h, pool);

		if (job)
			give(h, job, now);
		else if (!start_instance(h, pool))
			return;
	}
}

void
warm_serve(Helper *h)
{
	for (Pool *pool = h->pools; pool && h->waiting > 0 && !h->closing; pool = pool->next)
		serve_pool(h, pool);
}

/* ---- answers ---- */

/* Returns the resident memory of a process. */
static uint64_t
memory_of(pid_t pid)
{
	char		path[64];
	char		statm[128];
	unsigned long pages = 0;
	ssize_t		n;
	int			fd;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int) pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, statm, sizeof(statm) - 1);
	close(fd);
	statm[n > 0 ? n : 0] = '\0';
	return sscanf(statm, "%*u %lu", &pages) == 1 ? (uint64_t) pages * (uint64_t) sysconf(_SC_PAGESIZE) : 0;
}

static bool
is_worn_out(const Job *job)
{
	const FrameStart *start = &job->pool->start;

	return (start->warm_max_jobs > 0 && job->served >= start->warm_max_jobs) ||
		(start->warm_memory > 0 && memory_of(job->pid) > start->warm_memory);
}

/* Sends EXIT for the job of an instance, which then has none. */
static void
answered(Helper *h, Job *job, FrameVerdict verdict, FrameText line, const char *why)
{
	Frame		frame = {0};
	FrameExit  *exit = &frame.u.exit;

	job_read_rest(h, job);
	job_end_lines(h, job);
	frame.type = FRAME_EXIT;
	exit->job = job->number;
	exit->kind = FRAME_ANSWERED;
	exit->verdict = (uint8_t) verdict;
	exit->duration_us = now_us() - job->started;
	exit->stdout_bytes = line.len;
	exit->bad_lines = job->bad_lines;
	exit->output = line;
	exit->message = frame_text(why);
	if (output_tail(&job->err, exit))
		queue_frame(h, &frame);
	else
		h->out.failed = true;
	free((char *) exit->stderr_tail.data);
	job->number = NO_JOB;
	job->deadline = NEVER;
	job->idle_since = job->pool->last_used = now_us();
}

typedef struct Answer
{
	Helper	   *helper;
	Job		   *job;
} Answer;

static void
refused(Helper *h, Job *job, FrameVerdict verdict, const char *line, size_t len, const char *why)
{
	Capture		start = {(char *) line, len, len, len, len, false, NULL};
	FrameExit	kept = {0};

	if (output_judge(&start, FRAME_OUTPUT_TEXT, &kept))
	{
		output_cut(&kept);
		answered(h, job, verdict, kept.output, why);
	}
	else
		h->out.failed = true;
	output_free(&kept);
	discard(h, job);
}

/*
 * Stops the instance as at a timeout, and moves its answer to the output of an
 * ordinary tool.
 */
static void
stop_overlong(Helper *h, Job *job, const char *line, size_t len)
{
	job->output = FRAME_OUTPUT_TEXT;
	job->out.name = "the answer";
	job->out.max = job->pool->start.max_output;
	capture_add(&job->out, line ? line : "", len);
	job->out.total = (uint64_t) job->out.max + 1;
	job_stop(h, job, FRAME_STOP_OUTPUT, job->kill_grace);
}

static void
answer_line(void *arg, const char *line, size_t len, bool overlong)
{
	Helper	   *h = ((Answer *) arg)->helper;
	Job		   *job = ((Answer *) arg)->job;
	FrameText	text = {line, (uint32_t) len};
	FrameVerdict verdict;
	char	   *why = NULL;

	if (job->stop != 0)
		return;					/* too late: it ends for that reason */
	if (job->number == NO_JOB)
	{
		discard(h, job);
		return;
	}
	if (overlong)
	{
		stop_overlong(h, job, line, len);
		return;
	}
	verdict = answer_check(line ? line : "", len, job->answers.max, job->id, &why);
	if (verdict != FRAME_OUT_OK)
		refused(h, job, verdict, line ? line : "", len, why ? why : "the answer was refused");
	else
	{
		answered(h, job, verdict, text, "");
		/* the rest of an unread line can't be sent before another line */
		if (job->leaving || job->stdin_len > 0 || is_worn_out(job))
			retire(job);
	}
	free(why);
}

void
warm_read(Helper *h, Job *job, const char *data, size_t len)
{
	Answer		arg = {h, job};

	lines_add(&job->answers, data, len, answer_line, &arg);
	if (job->number == NO_JOB && job->answers.len > 0)
		discard(h, job);		/* it has begun a line without a job */
	else if (job->number != NO_JOB && job->answers.overlong && job->stop == 0)
		stop_overlong(h, job, job->answers.data, job->answers.len);
}

/* ---- time ---- */

void
warm_ended(Job *job)
{
	if (!job->leaving)
		job->pool->instances--;
	job->leaving = true;
}

uint64_t
warm_next_time(const Job *job)
{
	if (job->number != NO_JOB || job->leaving)
		return NEVER;
	return after_us(job->pool->last_used, job->pool->start.warm_idle_us);
}

void
warm_turn(Helper *h, Job *job, uint64_t now)
{
	if (job->fd[FD_STDIN] < 0 && job->kill_at == NEVER && !job->killed)
		discard(h, job);		/* it has closed its input */
	else if (now >= warm_next_time(job))
		retire(job);
}
