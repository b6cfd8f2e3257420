/*
 * job_pipes.c
 *	  A job's pipes: reads its output, sends events.
 *
 * Reading never stops: bytes beyond a limit are counted and dropped, so that a
 * tool never blocks on a full pipe.  Only descriptor 3 waits while the worker
 * does not take its events.  More stdout than max_output stops the tool as a
 * timeout does.  stderr has no limit; its tail is kept.
 */
#include <errno.h>
#include <unistd.h>

#include "helper.h"
#include "utf8.h"

typedef struct Line				/* argument of the LineHandlers */
{
	Helper	   *helper;
	Job		   *job;
} Line;

static void
send_event(Helper *h, Job *job, uint8_t kind, const char *line, size_t len)
{
	Frame		frame = {0};

	frame.type = FRAME_EVENT;
	frame.u.event.job = job->number;
	frame.u.event.kind = kind;
	frame.u.event.text.data = line;

	frame.u.event.text.len = (uint32_t) len;
	queue_frame(h, &frame);
}

/* Keeps an error line, in place of an earlier one. */
static void
keep_error(Helper *h, Job *job, const char *line, size_t len)
{
	job->error.len = 0;
	capture_add(&job->error, line, len);
	h->out.failed |= job->error.failed; /* out of memory: the loop ends */
}

static void
note_line(void *arg, const char *line, size_t len, bool overlong)
{
	Line	   *l = arg;
	uint8_t		kind;

	if (len == 0 && !overlong)
		return;
	if (overlong || !progress_kind(line, len, &kind) || (l->job->pool && !line_has_id(line, len, l->job->id)))
		l->job->bad_lines++;
	else if (kind == NOTE_ERROR)
		keep_error(l->helper, l->job, line, len);
	else if (kind != 0)
		send_event(l->helper, l->job, kind, line, len);
}

static void
stderr_line(void *arg, const char *line, size_t len, bool overlong)
{
	Line	   *l = arg;
	char		escaped[MAX_STDERR_LINE * UTF8_ESCAPE_MAX];

	(void) overlong;			/* its beginning is enough */
	if (l->job->log_lines == 0)
		return;
	l->job->log_lines--;
	if (len > 0 && line[len - 1] == '\r')
		len--;
	len = utf8_escape_tail(escaped, sizeof(escaped), line, len);
	send_event(l->helper, l->job, FRAME_EVENT_STDERR, escaped, len);
}

static void
take_bytes(Helper *h, Job *job, JobFd which, const char *data, size_t len)
{
	Line		arg = {h, job};

	if (which == FD_STDOUT && job->pool)
		warm_read(h, job, data, len);
	else if (which == FD_STDOUT)
	{
		capture_add(&job->out, data, len);
		if (job->stop == 0 && job_is_over_output(job))
			job_stop(h, job, FRAME_STOP_OUTPUT, job->kill_grace);
	}
	else if (which == FD_NOTES)
		lines_add(&job->notes, data, len, note_line, &arg);
	else
	{
		ring_add(&job->err, data, len);
		if (job->log_lines > 0)
			lines_add(&job->err_lines, data, len, stderr_line, &arg);
	}
}

/* Reads once. Returns false if nothing is there now, or at end of file. */
static bool
read_stream(Helper *h, Job *job, JobFd which)
{
	static char buf[IO_STEP];
	ssize_t		got = read(job->fd[which], buf, sizeof(buf));

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (got <= 0)
	{
		job_close_fd(job, which);
		return false;
	}
	job->last_byte = now_us();
	take_bytes(h, job, which, buf, (size_t) got);
	return true;
}

/*
 * Reads the rest of the pipes: all output when the main process has ended; the
 * output before its answer when an instance has answered.
 */
void
job_read_rest(Helper *h, Job *job)
{
	JobFd		which;
	int			turns;

	for (which = job->state == JOB_RUNNING ? FD_STDERR : FD_STDOUT; which <= FD_NOTES; which++)
		for (turns = 0; turns < 4 && job->fd[which] >= 0; turns++)
			if (!read_stream(h, job, which))
				break;
}

static bool
waits_for_worker(const Helper *h)
{
	return frame_pending(&h->out) > EVENTS_HIGH;
}

bool
job_holds_notes(const Helper *h, const Job *job)
{
	struct pollfd notes = {job->fd[FD_NOTES], POLLIN, 0};

	return waits_for_worker(h) && poll(&notes, 1, 0) > 0 && (notes.revents & POLLIN) != 0;
}

void
job_polls(Helper *h, Job *job, struct pollfd *polls)
{
	int			i;

	for (i = 0; i < JOB_PIPES; i++)
	{
		/* no event is sent before STARTED */
		polls[i].fd = job->state == JOB_STARTING ? -1 : job->fd[i];
		polls[i].events = i == FD_STDIN ? POLLOUT : POLLIN;
		polls[i].revents = 0;
	}
	polls[JOB_PIPES].fd = launch_fd(job);
	polls[JOB_PIPES].events = POLLIN;
	polls[JOB_PIPES].revents = 0;
	if (job->stdin_len == 0)
		polls[FD_STDIN].fd = -1;
	if (waits_for_worker(h))
		polls[FD_NOTES].fd = -1;
}

void
job_io(Helper *h, Job *job, const struct pollfd *polls)
{
	int			i;

	if (polls[JOB_PIPES].revents != 0 && job->state == JOB_STARTING)
		job_take_start(h, job, 0);
	for (i = 0; i < JOB_PIPES; i++)
	{
		if (polls[i].revents == 0 || job->fd[i] < 0)
			continue;
		if (i == FD_STDIN)
			job_write_stdin(job);
		else
			read_stream(h, job, i);
	}
}

/* Handles the last lines, which have no newline. */
void
job_end_lines(Helper *h, Job *job)
{
	Line		arg = {h, job};

	lines_end(&job->notes, note_line, &arg);
	lines_end(&job->err_lines, stderr_line, &arg);
}
