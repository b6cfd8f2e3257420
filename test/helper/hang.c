/*
 * hang.c
 *	  Makes the start or the end of a tool hang in the kernel.
 *
 *	 hang exec DIR PROGRAM ARG...
 *						executes PROGRAM.  Its own execve calls and those of
 *						its children hang (KILL ends them) while there is a
 *						file DIR/hold.  That file becomes DIR/held with the
 *						pid.  DIR/free ends the hang.
 *	 hang exit PID		prints "ready"; from now on PID can be killed, but
 *						stays until this process ends
 *	 hang disk DIR		prints "ready"; DIR is a file system that never
 *						answers (KILL does not help)
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fuse.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int
fail(const char *what)
{
	perror(what);
	return 1;
}

static void
ready(void)
{
	puts("ready");
	fflush(stdout);
}

/* ---- exec ---- */

static int
listen_for_exec(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	};
	struct sock_fprog program = {4, code};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return (int) syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static void
go_on(int fd, uint64_t id)
{
	struct seccomp_notif_resp answer = {0};

	answer.id = id;
	answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);	/* ENOENT: it was killed */
}

/* Writes the pid to DIR/held. */
static bool
hold(const char *dir, uint32_t pid)
{
	char		from[4096];
	char		to[4096];
	FILE	   *f;

	snprintf(from, sizeof(from), "%s/hold", dir);
	snprintf(to, sizeof(to), "%s/held", dir);
	f = fopen(from, "r+");
	if (!f)
		return false;
	fprintf(f, "%u", pid);
	fclose(f);
	return rename(from, to) == 0;
}

/* Answers calls until no process with the filter is left. */
static void
answer(int fd, const char *dir)
{
	struct pollfd asked = {fd, POLLIN, 0};
	char		free_it[4096];
	uint64_t	holding = 0;

	snprintf(free_it, sizeof(free_it), "%s/free", dir);
	while ((asked.revents & POLLHUP) == 0)
	{
		struct seccomp_notif notice = {0};

		if (poll(&asked, 1, 20) > 0 && (asked.revents & POLLIN) && ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &notice) == 0)
		{
			if (hold(dir, notice.pid))
				holding = notice.id;
			else
				go_on(fd, notice.id);
		}
		if (unlink(free_it) == 0)
			go_on(fd, holding);
	}
	_exit(0);
}

/*
 * Waits for the listener's descriptor, then answers.  It shares the caller's
 * descriptors until then, but not its filter, or it would wait for its own
 * end.
 */
static void
wait_and_answer(int told, const char *dir)
{
	int			fd = -1;

	if (read(told, &fd, sizeof(fd)) != sizeof(fd) || unshare(CLONE_FILES) != 0)
		_exit(1);
	for (int i = 0; i < fd; i++)
		close(i);
	answer(fd, dir);
}

/*
 * Executes PROGRAM under the filter.  The answering process can't be a child
 * of PROGRAM.
 */
static int
hang_exec(const char *dir, char **argv)
{
	int			ends[2];
	int			fd;
	pid_t		pid;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return fail("pipe");
	pid = (pid_t) syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0)
	{
		if (syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL) == 0)
			wait_and_answer(ends[0], dir);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	fd = listen_for_exec();
	if (write(ends[1], &fd, sizeof(fd)) != sizeof(fd) || fd < 0)
		return fail("seccomp");
	execv(argv[0], argv);
	return fail("execv");
}

/* ---- exit ---- */

static int
hang_exit(pid_t pid)
{
	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0)
		return fail("ptrace");
	ready();
	for (;;)
		pause();
}

/* ---- disk ---- */

static int
hang_disk(const char *dir)
{
	int			fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char		options[256];
	char		request[FUSE_MIN_READ_BUFFER + 65536];
	struct fuse_in_header *in = (struct fuse_in_header *) request;
	struct
	{
		struct fuse_out_header head;
		struct fuse_init_out init;
	}			out;

	if (fd < 0)
		return fail("/dev/fuse");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40755,user_id=%u,group_id=%u", fd, geteuid(), getegid());
	if (mount("hang", dir, "fuse", MS_NOSUID | MS_NODEV, options) != 0)
		return fail("mount");
	ready();
	for (;;)
	{
		if (read(fd, request, sizeof(request)) < 0)
			return errno == ENODEV ? 0 : fail("read");
		if (in->opcode != FUSE_INIT)
			continue;
		memset(&out, 0, sizeof(out));
		out.head.len = sizeof(out);
		out.head.unique = in->unique;
		out.init.major = FUSE_KERNEL_VERSION;
		out.init.minor = FUSE_KERNEL_MINOR_VERSION;
		out.init.max_write = 4096;
		if (write(fd, &out, sizeof(out)) < 0)
			return fail("write");
	}
}

int
main(int argc, char **argv)
{
	if (argc > 3 && strcmp(argv[1], "exec") == 0)
		return hang_exec(argv[2], argv + 3);
	if (argc == 3 && strcmp(argv[1], "exit") == 0)
		return hang_exit(atoi(argv[2]));
	if (argc == 3 && strcmp(argv[1], "disk") == 0)
		return hang_disk(argv[2]);
	fprintf(stderr, "usage: see the head of hang.c\n");
	return 2;
}
