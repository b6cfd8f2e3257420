/*
 * trust.c
 *	  Checks that only root and the server's user can replace a program.
 *
 * Every directory and every symbolic link of a path decides which file it
 * names, so each is checked.  Each must belong to root or to the user that
 * runs the tool, and no other user may write it.  A sticky directory (/tmp)
 * may be open: there no user can replace the files of another, and the owner
 * of the entry is checked next.  The groups of root and of the user may write.
 * The interpreter in a script's first line is checked as well; without it, or
 * when it can't be read, the program is refused.  When all of that holds, only
 * root and the user can change anything between this check and the exec.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "program.h"

#define MAX_LINKS		40		/* as the kernel */
#define MAX_FIRST_LINE	256		/* the kernel reads as much */
#define MAX_INTERPRETERS 5		/* the kernel goes no deeper */

typedef struct Trusted
{
	uid_t		uid;
	gid_t		gid;
	uid_t		root_uid;
	gid_t		root_gid;
	int			links;			/* followed so far */
} Trusted;

static bool path_is_safe(Trusted *t, const char *path);

static bool
inode_is_safe(const Trusted *t, const char *path, const struct stat *st)
{
	if (st->st_uid != t->root_uid && st->st_uid != t->uid)
		return false;
	if (S_ISLNK(st->st_mode) || (S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX)))
		return true;
	if ((st->st_mode & S_IWGRP) &&
		((st->st_gid != t->root_gid && st->st_gid != t->gid) ||
		 lgetxattr(path, "system.posix_acl_access", NULL, 0) > 0))
		return false;
	return (st->st_mode & S_IWOTH) == 0;
}

/*
 * Checks the target of the link, relative to its directory: the first dir_len
 * bytes of path.
 */
static bool
link_is_safe(Trusted *t, const char *path, size_t dir_len)
{
	char		target[PATH_MAX];
	char		whole[PATH_MAX];
	ssize_t		n = readlink(path, target, sizeof(target) - 1);

	if (n <= 0 || t->links++ >= MAX_LINKS)
		return false;
	target[n] = '\0';
	if (target[0] == '/')
		return path_is_safe(t, target);
	if (snprintf(whole, sizeof(whole), "%.*s/%s", (int) dir_len, path, target) >= (int) sizeof(whole))
		return false;
	return path_is_safe(t, whole);
}

/*
 * Checks the last part of path.  path is absolute, and the directories above
 * are checked.
 */
static bool
step_is_safe(Trusted *t, const char *path, size_t dir_len)
{
	struct stat st;

	if (lstat(path, &st) != 0 || !inode_is_safe(t, path, &st))
		return false;
	return !S_ISLNK(st.st_mode) || link_is_safe(t, path, dir_len);
}

/* Checks each part of path from the root on, like the kernel. */
static bool
path_is_safe(Trusted *t, const char *path)
{
	char		part[PATH_MAX];
	size_t		len = strlen(path);
	size_t		dir_len = 0;

	if (len >= sizeof(part) || path[0] != '/' || !step_is_safe(t, "/", 0))
		return false;
	for (size_t i = 1; i <= len; i++)
	{
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (i > dir_len + 1 && !step_is_safe(t, part, dir_len))
			return false;
		dir_len = i;
	}
	return true;
}

/*
 * Reads the path after "#!" in the file's first line, or an empty string.
 * Returns an errno if it can't be read.
 */
static int
read_interpreter(const char *path, char *interpreter)
{
	char		line[MAX_FIRST_LINE + 1];
	char	   *start;
	ssize_t		n;
	int			fd = open(path, O_RDONLY | O_CLOEXEC);

	interpreter[0] = '\0';
	if (fd < 0)
		return errno;
	n = read(fd, line, MAX_FIRST_LINE);
	close(fd);
	line[n > 0 ? n : 0] = '\0';
	if (strncmp(line, "#!", 2) != 0)
		return 0;
	start = line + 2 + strspn(line + 2, " \t");
	start[strcspn(start, " \t\n")] = '\0';
	strcpy(interpreter, start);
	return 0;
}

int
check_trust(const char *path, uid_t uid, gid_t gid)
{
	Trusted		t = {0};
	struct stat root;
	char		program[PATH_MAX];

	if (lstat("/", &root) != 0 || strlen(path) >= sizeof(program))
		return EPERM;
	t.uid = uid;
	t.gid = gid;
	t.root_uid = root.st_uid;
	t.root_gid = root.st_gid;
	strcpy(program, path);
	for (int i = 0; i <= MAX_INTERPRETERS; i++)
	{
		char		interpreter[MAX_FIRST_LINE + 1];
		int			error;

		t.links = 0;
		if (access(program, F_OK) != 0)
			return errno;
		if (!path_is_safe(&t, program))
			return EPERM;
		error = read_interpreter(program, interpreter);
		if (error != 0 || interpreter[0] == '\0')
			return error;
		if (interpreter[0] != '/')
			/* the kernel would search the tool's directory */
			return ENOENT;
		strcpy(program, interpreter);
	}
	return ELOOP;
}
