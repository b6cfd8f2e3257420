/*
 * log_and_clock.c
 *	  Writes the helper's log lines, and reads the monotonic clock.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "helper.h"

#define US_PER_S UINT64_C(1000000)

uint64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t) ts.tv_sec * US_PER_S + (uint64_t) ts.tv_nsec / 1000;
}

uint64_t
after_us(uint64_t now, uint64_t delay)
{
	return delay > NEVER - now ? NEVER : now + delay;
}

/*
 * Writes one line to standard error, which is the server's log.  Where that is
 * a full pipe, the line is lost: the helper never waits for its log.
 */
void
log_line(const char *format,...)
{
	struct pollfd log = {STDERR_FILENO, POLLOUT, 0};
	char		line[512];
	va_list		args;
	int			n = snprintf(line, sizeof(line), "jobq-helper: ");
	int			error = errno;

	va_start(args, format);
	n += vsnprintf(line + n, sizeof(line) - (size_t) n - 1, format, args);
	va_end(args);
	if (n > (int) sizeof(line) - 2)
		n = (int) sizeof(line) - 2;
	line[n++] = '\n';
	if (poll(&log, 1, 0) == 1 && write(STDERR_FILENO, line, (size_t) n) < 0)
		log.revents = 0;		/* no other place to report it */
	errno = error;
}
