/*
 * fail_alloc.c
 *	  Preloaded into a server: one allocation of a process fails.
 *
 * The file FAIL_ALLOC_FILE has three 64-bit numbers: the pid, the exact size
 * given to malloc or realloc, and how many of them succeed first.  The failure
 * sets the pid to 0.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_realloc(void *old, size_t size);

static volatile int64_t *plan;

__attribute__((constructor)) static void
map_file(void)
{
	const char *path = getenv("FAIL_ALLOC_FILE");
	int			fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void	   *map = fd < 0 ? MAP_FAILED :
		mmap(NULL, 3 * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		abort();
	plan = map;
	close(fd);
}

static int
fails(size_t size)
{
	if (!plan || size != (size_t) plan[1] || plan[0] != getpid() || plan[2]-- > 0)
		return 0;
	plan[0] = 0;
	errno = ENOMEM;
	return 1;
}

void *
malloc(size_t size)
{
	return fails(size) ? NULL : __libc_malloc(size);
}

void *
realloc(void *old, size_t size)
{
	return fails(size) ? NULL : __libc_realloc(old, size);
}
