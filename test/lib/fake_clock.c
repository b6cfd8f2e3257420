/*
 * fake_clock.c
 *	  Preloaded into a server: its wall clock is the machine's plus the seconds
 *	  in a file.  The monotonic clock is the machine's; with FAKE_MONOTONIC it
 *	  is the other way round, with FAKE_BOTH both are set, as if time passes.
 *
 * libfaketime does not serve here: it turns itself off in select(), where a
 * postmaster of PostgreSQL 15 forks its background workers.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define IS_MONOTONIC(clock) ((clock) == CLOCK_MONOTONIC || (clock) == CLOCK_MONOTONIC_COARSE)
#define IS_WALL(clock) ((clock) == CLOCK_REALTIME || (clock) == CLOCK_REALTIME_COARSE)
#if defined(FAKE_BOTH)
#define IS_FAKE(clock) (IS_MONOTONIC(clock) || IS_WALL(clock))
#elif defined(FAKE_MONOTONIC)
#define IS_FAKE(clock) IS_MONOTONIC(clock)
#else
#define IS_FAKE(clock) IS_WALL(clock)
#endif

static volatile int64_t *seconds;

__attribute__((constructor)) static void
map_file(void)
{
	const char *path = getenv("FAKE_CLOCK_FILE");
	int			fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void	   *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		abort();
	seconds = map;
	close(fd);
}

int
clock_gettime(clockid_t which, struct timespec *now)
{
	int			rc = (int) syscall(SYS_clock_gettime, which, now);

	if (rc == 0 && IS_FAKE(which) && seconds)
		now->tv_sec += *seconds;
	return rc;
}

int
gettimeofday(struct timeval *now, void *zone)
{
	struct timespec spec;
	int			rc = clock_gettime(CLOCK_REALTIME, &spec);

	(void) zone;
	now->tv_sec = spec.tv_sec;
	now->tv_usec = spec.tv_nsec / 1000;
	return rc;
}

time_t
time(time_t *now)
{
	struct timespec spec;

	(void) clock_gettime(CLOCK_REALTIME, &spec);
	if (now)
		*now = spec.tv_sec;
	return spec.tv_sec;
}
