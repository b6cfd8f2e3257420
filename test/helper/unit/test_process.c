/*
 * test_process.c
 *	  find_program, check_trust, process trees, remove_tree.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "helper.h"

static char base[] = "/tmp/jobq-unit-XXXXXX";

static void
make_file(const char *dir, const char *name, mode_t mode)
{
	char		path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	chmod(path, mode);
}

static bool
found(const char *name, const char *path, int want_error, const char *want)
{
	char	   *got = NULL;
	int			error = find_program(name, frame_text(path), &got);
	bool		ok = error == want_error && (want ? got && strcmp(got, want) == 0 : got == NULL || name[0] == '/');

	free(got);
	return ok;
}

static void
test_find_program(void)
{
	char		a[64];
	char		b[64];
	char		path[256];
	char		want[128];

	snprintf(a, sizeof(a), "%s/a", base);
	snprintf(b, sizeof(b), "%s/b", base);
	mkdir(a, 0700);
	mkdir(b, 0700);
	make_file(a, "both", 0600);
	make_file(b, "both", 0700);
	make_file(b, "only", 0700);
	make_file(a, "noexec", 0600);
	snprintf(path, sizeof(path), "%s/dir", a);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s:%s", a, b);
	snprintf(want, sizeof(want), "%s/both", b);
	CHECK(found("both", path, 0, want), "the first that can be executed");
	snprintf(want, sizeof(want), "%s/only", b);
	CHECK(found("only", path, 0, want), "in the last directory");
	CHECK(found("noexec", path, EACCES, NULL), "one that can't be executed");
	CHECK(found("dir", path, EACCES, NULL), "a directory is no program");
	CHECK(found("none", path, ENOENT, NULL) && found("only", "", ENOENT, NULL), "not there");
	CHECK(chdir(b) == 0 && found("only", "::.:b", ENOENT, NULL), "relative and empty entries are not looked at");
	CHECK(found("a/both", path, EINVAL, NULL) && found("./only", path, EINVAL, NULL) &&
		  found("", path, EINVAL, NULL) && found("..", path, EINVAL, NULL), "other forms are refused");
	CHECK(found("/bin/sh", "", 0, "/bin/sh") && found("/nonesuch", path, ENOENT, NULL) &&
		  found("/tmp", path, EACCES, NULL), "absolute paths are taken as they are");
}

static void
test_writable_by_all(void)
{
	char		dir[64];
	char		path[128];

	snprintf(dir, sizeof(dir), "%s/open", base);
	mkdir(dir, 0700);
	make_file(dir, "tool", 0700);
	make_file(dir, "loose", 0702);
	snprintf(path, sizeof(path), "%s/tool", dir);
	CHECK(found("tool", dir, 0, path), "one that only its owner may write");
	CHECK(found("loose", dir, EPERM, NULL), "a program that all users may write is refused");
	chmod(dir, 0777);
	CHECK(found("tool", dir, EPERM, NULL) && found(path, "", EPERM, NULL), "and one in such a directory");
	chmod(dir, 01777);
	CHECK(found("tool", dir, 0, path), "unless the directory is sticky");
	chmod(dir, 0700);
}

static void
make_script(const char *path, const char *first_line, mode_t mode)
{
	int			fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

	CHECK(write(fd, first_line, strlen(first_line)) == (ssize_t) strlen(first_line), "a script");
	close(fd);
	chmod(path, mode);
}

static bool
safe_for(const char *path, int other_user, int other_group)
{
	return check_trust(path, getuid() + (uid_t) other_user, getgid() + (gid_t) other_group) == 0;
}

/*
 * Checks files of this user as another user, the one with the next number.
 * main() runs as a user other than root, since every user may trust root's
 * files.
 */
static void
test_of_others(void)
{
	char		dir[64];
	char		path[128];
	char		link[128];
	char		line[160];

	snprintf(dir, sizeof(dir), "%s/mine", base);
	mkdir(dir, 0700);
	snprintf(path, sizeof(path), "%s/tool", dir);
	make_script(path, "#!/bin/sh\n", 0700);
	CHECK(safe_for(path, 0, 0) && !safe_for(path, 1, 0), "a program is its owner's and root's only");
	CHECK(safe_for("/bin/sh", 1, 1), "a program of root is trusted by all users, through links too");

	chmod(path, 0770);
	CHECK(safe_for(path, 0, 0) && !safe_for(path, 0, 1), "another group may not write it");
	chmod(path, 0700);
	chmod(dir, 0770);
	CHECK(safe_for(path, 0, 0) && !safe_for(path, 0, 1), "nor its directory");
	chmod(dir, 0700);

	snprintf(link, sizeof(link), "%s/link", dir);
	CHECK(symlink("/bin/sh", link) == 0 && safe_for(link, 0, 0) && !safe_for(link, 1, 0),
		  "a link of another user is refused, wherever it leads");
	unlink(link);
	CHECK(symlink("../mine/tool", link) == 0 && safe_for(link, 0, 0), "a relative link");
	chmod(path, 0702);
	CHECK(!safe_for(link, 0, 0), "is as good as what it leads to");
	unlink(link);
	CHECK(symlink("link", link) == 0 && !safe_for(link, 0, 0), "a link to itself leads nowhere");

	snprintf(line, sizeof(line), "#! %s -x\n", path);
	snprintf(link, sizeof(link), "%s/script", dir);
	make_script(link, line, 0700);
	CHECK(!safe_for(link, 0, 0), "a script is as good as its interpreter");
	make_script(path, "#!/bin/sh\n", 0700);
	CHECK(safe_for(link, 0, 0), "and no worse");
	make_script(path, "#!/nonesuch/sh\n", 0700);
	CHECK(check_trust(link, getuid(), getgid()) == ENOENT, "nor is one judged that is not there, at any depth");
	snprintf(line, sizeof(line), "#!%s\n", link);
	make_script(path, line, 0700);
	CHECK(check_trust(link, getuid(), getgid()) == ELOOP, "two that are each other's end somewhere");
	make_script(path, "#!/bin/sh\n", 0300);
	CHECK(check_trust(path, getuid(), getgid()) == EACCES, "what can't be read can't be judged");
}

/*
 * Makes a child with two children, one of which has a child.  The pipe reports
 * when all exist.
 */
static pid_t
make_family(void)
{
	int			ready[2];
	char		byte;
	int			n = 0;
	pid_t		top;

	if (pipe(ready) != 0)
		return -1;
	top = fork();
	if (top == 0)
	{
		if (fork() == 0)
			fork();
		else
			fork();
		n = (int) write(ready[1], "x", 1);
		for (;;)
			pause();
	}
	while (n < 4)
		n += (int) read(ready[0], &byte, 1);
	close(ready[0]);
	close(ready[1]);
	return top;
}

static void
test_tree(void)
{
	pid_t		by_file[16];
	pid_t		by_scan[16];
	pid_t		top = make_family();
	int			files;
	int			scans;
	int			i;
	int			same = 0;

	tree_use_scan = false;
	files = tree_descendants(top, by_file, 0, 16);
	tree_use_scan = true;
	scans = tree_descendants(top, by_scan, 0, 16);
	tree_use_scan = false;
	for (i = 0; i < files * scans; i++)
		same += by_file[i / scans] == by_scan[i % scans];
	CHECK(files == 3 && scans == 3 && same == 3, "both ways find a process's three descendants");
	CHECK(tree_descendants(top, by_file, 0, 2) == 2, "never more than there is room for");
	for (i = 0; i < scans; i++)
		kill(by_scan[i], SIGKILL);
	kill(top, SIGKILL);
	waitpid(top, NULL, 0);
	CHECK(tree_descendants(top, by_file, 0, 16) == 0, "of a process that is gone: none");
}

static void
nest(int parent, int depth)
{
	int			at = dup(parent);

	while (depth-- > 0)
	{
		int			next;

		mkdirat(at, "deep", 0700);
		next = openat(at, "deep", O_RDONLY | O_DIRECTORY);
		close(at);
		at = next;
	}
	close(openat(at, "file", O_CREAT | O_WRONLY, 0600));
	fchmod(at, 0);
	close(at);
}

static void
test_remove_tree(void)
{
	int			parent = open(base, O_RDONLY | O_DIRECTORY);
	int			top;
	int			i;
	char		name[64];
	char		target[128];

	snprintf(target, sizeof(target), "%s/precious", base);
	mkdir(target, 0700);
	make_file(target, "file", 0600);
	mkdirat(parent, "tree", 0700);
	top = openat(parent, "tree", O_RDONLY | O_DIRECTORY);
	symlinkat("/", top, "root");
	symlinkat(target, top, "link");
	for (i = 0; i < 2000; i++)
	{
		snprintf(name, sizeof(name), "file %d", i);
		close(openat(top, name, O_CREAT | O_WRONLY, 0));
	}
	for (i = 0; i < 50; i++)
	{
		snprintf(name, sizeof(name), "dir %d", i);
		mkdirat(top, name, 0700);
	}
	nest(top, 3000);
	mkdirat(top, "locked", 0700);
	symlinkat("/", top, "locked/root");
	mkdirat(top, "locked/in", 0700);
	fchmodat(top, "locked/in", 0, 0);
	fchmodat(top, "locked", 0, 0);
	fchmod(top, 0);
	close(top);
	CHECK(remove_tree(parent, "tree"), "links, 2,000 files, 3,000 levels, directories without permissions: all gone");
	CHECK(faccessat(parent, "tree", F_OK, AT_SYMLINK_NOFOLLOW) != 0, "it is");
	CHECK(faccessat(parent, "precious/file", F_OK, 0) == 0 && access("/", F_OK) == 0, "nothing behind a link is touched");
	CHECK(remove_tree(parent, "tree"), "one that is not there is no failure");
	symlinkat(target, parent, "alias");
	CHECK(!remove_tree(parent, "alias") && faccessat(parent, "precious/file", F_OK, 0) == 0, "a link is not followed");
	unlinkat(parent, "alias", 0);
	close(parent);
}

int
main(void)
{
	char		name[64];
	int			parent = open("/tmp", O_RDONLY | O_DIRECTORY);

	if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
		return 1;
	if (!mkdtemp(base))
		return 1;
	test_find_program();
	test_writable_by_all();
	test_of_others();
	test_tree();
	test_remove_tree();
	snprintf(name, sizeof(name), "%s", base + 5);
	CHECK(remove_tree(parent, name), "the tests' own directory goes the same way");
	close(parent);
	return done();
}
