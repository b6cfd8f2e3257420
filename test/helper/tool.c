/*
 * tool.c
 *	  A tool for tests: reports its surroundings, or misbehaves.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

extern char **environ;

static void
say_ready(void)
{
	static const char line[] = "{\"log\":\"ready\"}\n";

	if (write(3, line, sizeof(line) - 1) < 0)
		exit(90);
}

static void
ignore_signals(void)
{
	int			sig;

	for (sig = 1; sig < NSIG; sig++)
		if (sig != SIGCHLD)
			signal(sig, SIG_IGN);
}

static int
tell_argv(int argc, char **argv)
{
	int			i;

	for (i = 2; i < argc; i++)
		printf("%zu:%s,", strlen(argv[i]), argv[i]);
	return 0;
}

static int
tell_env(void)
{
	char	  **e;

	for (e = environ; *e; e++)
		puts(*e);
	return 0;
}

static int
tell_fds(void)
{
	int			fd;

	for (fd = 0; fd < 4096; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("%d ", fd);
	return 0;
}

static void
tell_file(const char *path, const char *prefix)
{
	char		line[512];
	FILE	   *f = fopen(path, "r");

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, prefix, strlen(prefix)) == 0)
			fputs(line, stdout);
	if (f)
		fclose(f);
}

static int
tell_process(void)
{
	struct sigaction act;
	struct rlimit limit;
	char		cwd[4096];
	int			death = -1;
	int			sig;
	mode_t		mask = umask(0);
	struct stat st;

	tell_file("/proc/self/status", "Sig");
	tell_file("/proc/self/status", "Shd");
	tell_file("/proc/self/status", "NoNewPrivs");
	for (sig = 1; sig < NSIG; sig++)
		if (sigaction(sig, NULL, &act) == 0 && act.sa_handler != SIG_DFL)
			printf("disposition: %d\n", sig);
	printf("leads session: %d\n", getsid(0) == getpid() && getpgrp() == getpid());
	printf("terminal: %d\n", open("/dev/tty", O_RDWR) >= 0);
	printf("umask: %03o\n", (unsigned) mask);
	printf("cwd: %s\n", getcwd(cwd, sizeof(cwd)));
	printf("cwd mode: %o\n", stat(".", &st) == 0 ? (unsigned) (st.st_mode & 07777) : 0);
	prctl(PR_GET_PDEATHSIG, &death);
	printf("death signal: %d\n", death);
	printf("subreaper: %d\n", (prctl(PR_GET_CHILD_SUBREAPER, &death), death));
	getrlimit(RLIMIT_CORE, &limit);
	printf("core: %llu\n", (unsigned long long) limit.rlim_max);
	getrlimit(RLIMIT_NOFILE, &limit);
	printf("nofile: %llu\n", (unsigned long long) limit.rlim_max);
	getrlimit(RLIMIT_AS, &limit);
	printf("memory: %llu\n", (unsigned long long) limit.rlim_max);
	fputs("oom: ", stdout);
	fflush(stdout);
	tell_file("/proc/self/oom_score_adj", "");
	return 0;
}

static int
__attribute__((noreturn))
hold(void)
{
	say_ready();
	for (;;)
		pause();
}

/*
 * Leaves a daemon that ignores TERM, holds stdout, and leads its own session.
 */
static int
leave_daemon(void)
{
	int			ready[2];
	char		byte;

	if (pipe(ready) != 0)
		return 91;
	if (fork() == 0)
	{
		setsid();
		if (fork() != 0)
			_exit(0);
		ignore_signals();
		clearenv();
		if (chdir("/") != 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		close(ready[0]);
		close(ready[1]);
		for (;;)
			pause();
	}
	wait(NULL);
	if (read(ready[0], &byte, 1) != 1)
		return 92;
	puts("ok");
	return 0;
}

/* Forks away: each generation leaves the session, forks and exits. */
static int
run_away(void)
{
	pid_t		main_pid = getpid();

	if (fork() != 0)
	{
		say_ready();
		usleep(50000);
		puts("ok");
		return 0;
	}
	for (;;)
	{
		setsid();
		if (fork() > 0)
			_exit(0);
		if (getpid() == main_pid)
			return 93;
	}
}

/*
 * Starts children, each in its own session and with a child, that all ignore
 * TERM.
 */
static int
grow_tree(void)
{
	int			ready[2];
	char		byte;
	int			n = 0;
	int			i;

	if (pipe(ready) != 0)
		return 98;
	for (i = 0; i < 3; i++)
		if (fork() == 0)
		{
			setsid();
			ignore_signals();
			if (fork() == 0)
				setsid();
			n = (int) write(ready[1], "x", 1);
			for (;;)
				pause();
		}
	while (n < 6)
		n += (int) read(ready[0], &byte, 1);
	return hold();
}

static int
flood(int fd, long long bytes)
{
	static char block[65536];
	long long	left = bytes;

	memset(block, 'y', sizeof(block));
	while (bytes == 0 || left > 0)
	{
		size_t		want = bytes == 0 || left > (long long) sizeof(block) ? sizeof(block) : (size_t) left;
		ssize_t		n = write(fd, block, want);

		if (n < 0)
			return 94;
		left -= n;
	}
	return 0;
}

static int
litter(int files)
{
	char		name[64];
	int			i;

	if (symlink("/", "root") != 0 || mkdir("dir", 0700) != 0 || symlink("/", "dir/root") != 0)
		return 95;
	for (i = 0; i < files; i++)
	{
		snprintf(name, sizeof(name), "file-%d", i);
		close(open(name, O_CREAT | O_WRONLY, 0000));
	}
	chmod("dir", 0);
	puts("ok");
	return 0;
}

static void
on_term(int sig)
{
	static const char text[] = "cleaned up\n";

	(void) sig;
	if (write(1, text, sizeof(text) - 1) < 0)
		_exit(96);
	_exit(0);
}

static int
allocate(size_t bytes)
{
	char	   *p = malloc(bytes);

	if (!p)
		return 7;
	memset(p, 1, bytes);
	return p[bytes / 2] == 1 ? 0 : 8;
}

/* Reserves addresses without memory. */
static int
reserve(size_t bytes)
{
	return mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED ? 7 : 0;
}

static int
notes(long n)
{
	char		line[128];

	for (long i = 0; i < n; i++)
	{
		int			len = snprintf(line, sizeof(line), "{\"log\":\"line %ld of many that the worker reads later\"}\n", i);

		if (write(3, line, (size_t) len) != len)
			return 97;
	}
	return 0;
}

static int
__attribute__((noreturn))
crash(int sig)
{
	signal(sig, SIG_DFL);
	raise(sig);
	hold();
}

/* ---- warm: each line is a job; executes its text after "do" ---- */

static bool
find_text(const char *line, const char *key, char *value, size_t size)
{
	char		pattern[64];
	const char *at;
	size_t		n;

	snprintf(pattern, sizeof(pattern), "\"%s\":\"", key);
	at = strstr(line, pattern);
	if (!at)
		return false;
	at += strlen(pattern);
	n = strcspn(at, "\"");
	snprintf(value, size, "%.*s", (int) n, at);
	return true;
}

static void
grow(size_t bytes)
{
	volatile char *more = malloc(bytes);

	if (!more)
		exit(7);
	for (size_t i = 0; i < bytes; i += 1024)
		more[i] = 1;
}

static void
warm_note(const char *id)
{
	dprintf(3, "{\"id\":\"%s\",\"log\":\"mine\"}\n{\"id\":\"other\",\"log\":\"not mine\"}\n{\"log\":\"whose\"}\n", id);
	fprintf(stderr, "about %s\n", id);
}

static void
warm_do(const char *id, const char *what, int served)
{
	if (strcmp(what, "exit") == 0)
		exit(3);
	if (strcmp(what, "error") == 0 || strcmp(what, "warn") == 0)
		dprintf(3, "{\"id\":\"%s\",\"error\":\"mine\"}\n", id);
	if (strcmp(what, "error") == 0)
	{
		dprintf(3, "{\"id\":\"other\",\"error\":\"not mine\"}\n");
		exit(3);
	}
	if (strcmp(what, "leave") == 0)
		exit(0);
	if (strcmp(what, "crash") == 0)
		kill(getpid(), SIGKILL);
	if (strcmp(what, "hang") == 0)
		for (;;)
			pause();
	if (strcmp(what, "note") == 0)
		warm_note(id);
	if (strcmp(what, "grow") == 0)
		grow(32 * 1024 * 1024);
	if (strcmp(what, "deaf") == 0)
		close(0);
	if (strcmp(what, "garbage") == 0)
		puts("no json");
	else if (strcmp(what, "other") == 0)
		puts("{\"id\":\"other\",\"result\":1}");
	else if (strcmp(what, "empty") == 0)
		printf("{\"id\":\"%s\"}\n", id);
	else if (strcmp(what, "long") == 0)
		printf("{\"id\":\"%s\",\"result\":\"%0*d\"}\n", id, 100000, 0);
	else if (strcmp(what, "endless") == 0)
		for (;;)
			fputs("yes ", stdout);
	else if (strcmp(what, "fail") == 0)
		printf("{\"id\":\"%s\",\"error\":\"no\",\"code\":\"E1\",\"retryable\":false}\n", id);
	else
		printf("{\"id\":\"%s\",\"result\":{\"pid\":%d,\"served\":%d,\"what\":\"%s\"}}\n", id, (int) getpid(), served, what);
	if (strcmp(what, "twice") == 0)
		puts("{\"id\":\"again\",\"result\":1}");
	fflush(stdout);
}

static int
stay_warm(void)
{
	char	   *line = NULL;
	size_t		size = 0;
	char		id[128];
	char		what[128];
	int			served = 0;

	while (getline(&line, &size, stdin) > 0)
	{
		if (!find_text(line, "id", id, sizeof(id)) || !find_text(line, "do", what, sizeof(what)))
			return 70;
		warm_do(id, what, ++served);
	}
	free(line);
	return 0;
}

/* Answers each line when it has read the beginning, then skips the rest. */
static int
answer_early(void)
{
	char		line[4097];
	char		id[128];
	ssize_t		got;

	while ((got = read(0, line, sizeof(line) - 1)) > 0)
	{
		line[got] = '\0';
		if (!find_text(line, "id", id, sizeof(id)))
			return 70;
		dprintf(1, "{\"id\":\"%s\",\"error\":\"too long\"}\n", id);
		while (!memchr(line, '\n', (size_t) got))
			if ((got = read(0, line, sizeof(line) - 1)) <= 0)
				return 0;
	}
	return 0;
}

int
main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	long long	n = argc > 2 ? atoll(argv[2]) : 0;

	if (strcmp(what, "argv") == 0)
		return tell_argv(argc, argv);
	if (strcmp(what, "env") == 0)
		return tell_env();
	if (strcmp(what, "fds") == 0)
		return tell_fds();
	if (strcmp(what, "process") == 0)
		return tell_process();
	if (strcmp(what, "exit") == 0)
		return (int) n;
	if (strcmp(what, "signal") == 0)
		return crash((int) n);
	if (strcmp(what, "hold") == 0)
		return hold();
	if (strcmp(what, "ignore-term") == 0)
		return ignore_signals(), hold();
	if (strcmp(what, "obey-term") == 0)
		return signal(SIGTERM, on_term), hold();
	if (strcmp(what, "daemon") == 0)
		return leave_daemon();
	if (strcmp(what, "run-away") == 0)
		return run_away();
	if (strcmp(what, "tree") == 0)
		return grow_tree();
	if (strcmp(what, "stop") == 0)
		return say_ready(), raise(SIGSTOP), hold();
	if (strcmp(what, "stdout") == 0)
		return flood(1, n);
	if (strcmp(what, "stderr") == 0)
		return flood(2, n);
	if (strcmp(what, "reserve") == 0)
		return reserve((size_t) n);
	if (strcmp(what, "delegate") == 0)
		return setxattr(argv[2], "user.delegate", argv[3], 1, 0) == 0 ? 0 : 1;
	if (strcmp(what, "litter") == 0)
		return litter((int) n);
	if (strcmp(what, "allocate") == 0)
		return allocate((size_t) n);
	if (strcmp(what, "notes") == 0)
		return notes((long) n);
	if (strcmp(what, "close-stdin") == 0)
		return close(0), usleep(200000), puts("ok"), 0;
	if (strcmp(what, "warm") == 0)
		return stay_warm();
	if (strcmp(what, "warm-early") == 0)
		return answer_early();
	if (strcmp(what, "spin") == 0)
		for (;;)
			;
	fprintf(stderr, "tool: unknown request \"%s\"\n", what);
	return 64;
}
