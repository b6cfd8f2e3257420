/*
 * supervisor.c
 *	  The poll loop: frames from the worker, ended children, the tools' pipes,
 *	  and time.
 *
 * One turn: wait; handle all input; call job_turn() for each job; sweep the
 * process trees of ended jobs; free them.  Only the wait for starts (job.c)
 * blocks in a turn, for a moment.  Each turn computes when the next action is
 * due, so an idle helper sleeps until input arrives.
 *
 * The loop ends after SHUTDOWN, when the last EXIT is sent.  It also ends when
 * the worker is gone: end of file, SIGTERM (the parent's death), or a
 * malformed frame.  Then all tools are killed at once.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper.h"

#define FIXED_POLLS 2			/* socket, signals */

/* ---- the worker ---- */

/* Kills all tools: no worker is left that could use a result. */
static void
lose_worker(Helper *h, int status)
{
	int			i;

	if (h->lost)
		return;
	h->lost = h->closing = true;
	h->status = status;
	h->leave_by = after_us(now_us(), LEAVE_MAX_US);
	close(h->sock);
	h->sock = -1;
	for (i = 0; i < h->njobs; i++)
		job_kill(h, h->jobs[i]);
}

static void
flush(Helper *h)
{
	FrameIo		io;

	if (h->lost)
		return;
	if (h->out.failed)
	{
		log_line("out of memory");
		lose_worker(h, 1);
		return;
	}
	io = frame_send(&h->out, h->sock);
	if (io == FRAME_IO_EOF || io == FRAME_IO_ERROR)
		lose_worker(h, 0);
}

static bool
take_hello(Helper *h, const FrameHello *hello)
{
	Frame		answer = {0};

	if (hello->max_frame > h->max_frame)
		h->max_frame = h->in.max_frame = hello->max_frame;
	if (!h->greeted && !workdir_open(h, hello->workdir))
		return false;
	if (!h->greeted)
	{
		end_orphans(h);
		cgroup_open(h);
	}
	h->greeted = true;
	answer.type = FRAME_HELLO;
	answer.u.hello.max_frame = h->max_frame;
	answer.u.hello.max_jobs = (uint32_t) h->max_jobs;
	answer.u.hello.pid = (uint32_t) h->pid;
	queue_frame(h, &answer);
	flush(h);					/* the worker gets it before any tool runs */
	return true;
}

static Job *
find_job(Helper *h, uint64_t number)
{
	int			i;

	for (i = 0; i < h->njobs; i++)
		if (h->jobs[i]->number == number && number != NO_JOB)
			return h->jobs[i];
	return NULL;
}

static void
take_shutdown(Helper *h, const FrameShutdown *order)
{
	int			i;

	h->closing = true;
	warm_cancel_all(h);
	for (i = 0; i < h->njobs; i++)
		job_stop(h, h->jobs[i], FRAME_STOP_SHUTDOWN, order->grace_us);
}

/* Returns false if the frame is not allowed here. */
static bool
take_frame(Helper *h, const Frame *frame)
{
	Job		   *job;

	if (frame->type == FRAME_HELLO)
		return take_hello(h, &frame->u.hello);
	if (!h->greeted)
		return false;
	switch ((FrameType) frame->type)
	{
		case FRAME_START:
			if (find_job(h, frame->u.start.job) || warm_is_waiting(h, frame->u.start.job))
				return false;
			job_start(h, &frame->u.start);
			return true;
		case FRAME_CANCEL:
			job = warm_cancel(h, frame->u.cancel.job) ? NULL : find_job(h, frame->u.cancel.job);
			if (job)
				job_stop(h, job, frame->u.cancel.reason, frame->u.cancel.grace_us);
			return true;
		case FRAME_SHUTDOWN:
			take_shutdown(h, &frame->u.shutdown);
			return true;
		case FRAME_PING:
			queue_frame(h, &(const Frame) {.type = FRAME_PONG});
			return true;
		default:
			return false;
	}
}

static void
read_frames(Helper *h)
{
	Frame		frame;
	FrameStatus status;
	FrameIo		io = frame_recv(&h->in, h->sock);

	if (io == FRAME_IO_AGAIN)
		return;
	if (io != FRAME_IO_DONE)
	{
		lose_worker(h, 0);
		return;
	}
	while ((status = frame_decoder_next(&h->in, &frame)) == FRAME_READY)
		if (!take_frame(h, &frame))
		{
			log_line("unexpected frame of type %d", frame.type);
			lose_worker(h, 1);
			return;
		}
	if (status == FRAME_BAD)
	{
		log_line("%s", h->in.error);
		lose_worker(h, 1);
	}
}

/* ---- children ---- */

/*
 * Reaps one child.  Its owner is determined before: until then its limits
 * still have the tag of its job.
 */
static void
reap_one(Helper *h, pid_t pid)
{
	struct rusage usage;
	Job		   *owner;
	int			status;
	int			i;

	for (i = 0; i < h->njobs; i++)
	{
		if (h->jobs[i]->state == JOB_STARTING && launch_pid(h->jobs[i]) == pid)
			job_take_start(h, h->jobs[i], -1);	/* it has run, so the
												 * starter's answer is on
												 * the way */
		if (h->jobs[i]->pid == pid)
			break;
	}
	owner = i < h->njobs || pid == h->cleaner ? NULL : tree_owner(h, pid);
	if (wait4(pid, &status, WNOHANG, &usage) != pid)
		return;
	if (i < h->njobs)
		job_main_ended(h, h->jobs[i], status, &usage);
	else if (pid == h->cleaner)
		h->cleaner = 0;
	else if (owner && owner->state == JOB_SWEEPING)
		owner->left++;
}

static void
reap_children(Helper *h)
{
	struct signalfd_siginfo info;
	siginfo_t	child;

	while (read(h->signals, &info, sizeof(info)) == (ssize_t) sizeof(info))
		if (info.ssi_signo == SIGTERM)
			lose_worker(h, 0);
	for (;;)
	{
		child.si_pid = 0;
		if (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) != 0)
			h->childless = errno == ECHILD;
		if (child.si_pid == 0)
			return;
		reap_one(h, child.si_pid);
	}
}

/* ---- the loop ---- */

static uint64_t
next_time(const Helper *h)
{
	uint64_t	next = h->lost ? h->leave_by : NEVER;
	int			i;

	for (i = 0; i < h->njobs; i++)
	{
		uint64_t	time = job_next_time(h->jobs[i]);

		if (time < next)
			next = time;
	}
	return next;
}

static int
milliseconds_until(uint64_t time)
{
	uint64_t	now = now_us();

	if (time == NEVER)
		return -1;
	if (time <= now)
		return 0;
	return (time - now) / 1000 >= 60000 ? 60000 : (int) ((time - now + 999) / 1000);
}

/*
 * Waits, then handles all input.  Jobs that START adds meanwhile come last and
 * have no polls yet.
 */
static void
wait_and_take(Helper *h)
{
	static struct pollfd polls[FIXED_POLLS + MAX_JOBS * JOB_POLLS];
	int			njobs = h->njobs;
	size_t		queued = frame_pending(&h->out);
	int			i;

	polls[0].fd = h->sock;
	polls[0].events = (short) ((queued < QUEUE_HIGH ? POLLIN : 0) | (queued > 0 ? POLLOUT : 0));
	polls[1].fd = h->signals;
	polls[1].events = POLLIN;
	for (i = 0; i < njobs; i++)
		job_polls(h, h->jobs[i], polls + FIXED_POLLS + i * JOB_POLLS);
	if (poll(polls, (nfds_t) (FIXED_POLLS + njobs * JOB_POLLS), milliseconds_until(next_time(h))) <= 0)
		return;
	for (i = 0; i < njobs; i++)
		job_io(h, h->jobs[i], polls + FIXED_POLLS + i * JOB_POLLS);
	if (polls[0].revents & (POLLIN | POLLHUP | POLLERR))
		read_frames(h);
	if (polls[1].revents)
		reap_children(h);
}

/* Calls job_turn() for all jobs, and sends EXIT for those that have ended. */
static void
finish_jobs(Helper *h)
{
	uint64_t	now = now_us();
	int			sweeping = 0;
	int			i;

	for (i = 0; i < h->njobs; i++)
	{
		job_turn(h, h->jobs[i], now);
		sweeping += h->jobs[i]->state == JOB_SWEEPING;
	}
	if (sweeping > 0 || h->lost)
		tree_sweep(h);
	for (i = 0; sweeping > 0 && i < h->njobs; i++)
		if (h->jobs[i]->state == JOB_SWEEPING)
			job_swept(h, h->jobs[i]);
}

static void
forget_ended(Helper *h)
{
	int			kept = 0;
	int			i;

	for (i = 0; i < h->njobs; i++)
	{
		if (h->jobs[i]->state == JOB_ENDED)
		{
			h->pools_to_free |= h->jobs[i]->pool != NULL;
			if (h->jobs[i]->pool)
				warm_ended(h->jobs[i]);
			job_free(h->jobs[i]);
		}
		else
			h->jobs[kept++] = h->jobs[i];
	}
	h->njobs = kept;
}

/* True if a job has no EXIT yet. A stuck job has one. */
static bool
has_jobs(const Helper *h)
{
	int			i;

	for (i = 0; i < h->njobs; i++)
		if (h->jobs[i]->state != JOB_STUCK)
			return true;
	return false;
}

static bool
may_leave(const Helper *h)
{
	if (h->lost && now_us() >= h->leave_by)
		return true;
	return h->closing && !has_jobs(h) && h->cleaner == 0 && (!h->trash || h->run_fd < 0) &&
		(h->lost || frame_pending(&h->out) == 0);
}

int
supervise(Helper *h)
{
	do
	{
		wait_and_take(h);
		finish_jobs(h);
		forget_ended(h);
		if (h->waiting > 0)
		{
			warm_serve(h);
			forget_ended(h);	/* jobs with a failed start: EXIT in this
								 * turn */
		}
		if (h->pools_to_free)
			warm_free_pools(h);
		if (h->starters_abandoned)
		{
			launch_reap(h);
			tree_sweep(h);		/* children of a tool whose start was given up */
		}
		workdir_clean(h);
		flush(h);
	} while (!may_leave(h));
	cgroup_close(h);
	workdir_close(h);
	warm_cancel_all(h);
	warm_free_pools(h);
	frame_decoder_free(&h->in);
	frame_buf_free(&h->out);
	return h->status;
}
