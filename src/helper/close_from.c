/*
 * close_from.c
 *	  Closes inherited descriptors: in the helper, its starters and the
 *	  processes that execute tools.
 */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "helper.h"

/*
 * Parses a name in /proc/self/fd.  Allocates no memory, because it also runs
 * between clone and exec.
 */
static int IN_CHILD
parse_fd(const char *name)
{
	int			fd = 0;

	for (; *name; name++)
	{
		if (*name < '0' || *name > '9' || fd > 100000000)
			return -1;
		fd = fd * 10 + (*name - '0');
	}
	return fd;
}

static void IN_CHILD
close_listed(int dir, int first)
{
	char		buf[4096] __attribute__((aligned(8)));
	long		n;

	/*
	 * closing while listing may skip entries: list again until nothing is left
	 * to close
	 */
	for (bool closed = true; closed;)
	{
		closed = false;
		lseek(dir, 0, SEEK_SET);
		while ((n = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0)
		{
			long		at = 0;

			while (at < n)
			{
				struct linux_dirent64 *entry = (struct linux_dirent64 *) (buf + at);
				int			fd = parse_fd(entry->d_name);

				if (fd >= first && fd != dir && close(fd) == 0)
					closed = true;
				at += entry->d_reclen;
			}
		}
	}
}

void IN_CHILD
close_from(int first)
{
	int			dir;

#ifdef SYS_close_range
	if (syscall(SYS_close_range, (unsigned) first, ~0U, 0) == 0)
		return;
#endif
	dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0)
	{
		close_listed(dir, first);
		close(dir);
		return;
	}
	for (int fd = first; fd < 65536; fd++)
		close(fd);
}
