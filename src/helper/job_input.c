/*
 * job_input.c
 *	  A job's input, written when it starts and while its pipe has room; the
 *	  end of a job's descriptors.
 *
 * Files that job_pipes.c calls use it, so it is apart.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "helper.h"

void
job_close_fd(Job *job, JobFd which)
{
	if (job->fd[which] >= 0)
		close(job->fd[which]);
	job->fd[which] = -1;
}

/*
 * Writes the job's input.  A tool may leave input unread.  Returns false if
 * the pipe has no reader.
 */
bool
job_write_stdin(Job *job)
{
	size_t		left = job->stdin_len - job->stdin_sent;
	ssize_t		put = left > 0 ? write(job->fd[FD_STDIN], job->stdin_data + job->stdin_sent, left) : 0;

	if (put < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (put > 0)
		job->stdin_sent += (size_t) put;
	if (put >= 0 && job->stdin_sent < job->stdin_len)
		return true;
	if (!job->pool || put < 0)
		job_close_fd(job, FD_STDIN);
	free(job->stdin_data);
	job->stdin_data = NULL;
	job->stdin_len = job->stdin_sent = 0;
	return put >= 0;
}
