/*
 * main.c
 *	  jobq-top: the state of jobq in a terminal, or once as text or JSON.
 *
 * One connection (link.c) asks a few constant statements (feed.c), in a
 * read-only session and with the rights of its role.  live.c shows them on a
 * screen (screen.c, sections.c, table.c, terminal.c); --once and --json print
 * them.  Exit status: 0 healthy, 1 degraded, 2 unhealthy, 3 unknown, because
 * there is no connection or no right; without --once and --json 0 or 3.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "top/feed.h"
#include "top/json_output.h"
#include "top/link.h"
#include "top/live.h"
#include "top/screen.h"
#include "top/sections.h"
#include "top/terminal.h"

#define UNKNOWN		3
#define RETRY_MS	1000
#define MAX_INTERVAL_S	3600

/* Keys and values of PQconnectStartParams; NULL values are those of the environment. */
enum
{
	HOST, PORT, USER, PASSWORD, APPLICATION, ENCODING, DBNAME, N_PARAMETERS
};
static const char *const keys[N_PARAMETERS + 1] = {
	"host", "port", "user", "password", "fallback_application_name", "client_encoding", "dbname", NULL
};
static const char *values[N_PARAMETERS + 1];

static struct
{
	bool		once;
	bool		json;
	bool		never_ask;
	bool		ask_first;
	int64_t		interval_ms;
} options = {.interval_ms = 2000};

static const char help[] =
	"jobq-top shows the state of jobq.\n\n"
	"Usage: jobq-top [OPTION]... [DBNAME or conninfo]\n\n"
	"  -d, --dbname=DBNAME      database name or conninfo string\n"
	"  -h, --host=HOST          host or directory of the socket\n"
	"  -p, --port=PORT          port\n"
	"  -U, --username=NAME      role\n"
	"  -w, --no-password        never ask for a password\n"
	"  -W, --password           ask for a password before connecting\n"
	"  -i, --interval=SECONDS   refresh so often (2)\n"
	"      --once               print once as text; the exit status is the verdict\n"
	"      --json               print once as JSON\n"
	"      --help, --version\n\n"
	"Exit status: 0 healthy, 1 degraded, 2 unhealthy, 3 unknown (no connection, no right).\n";

static void
fail(const char *message)
{
	Buf			line = {0};

	text_put(&line, message, -1);
	fprintf(stderr, "jobq-top: %s\n", line.s ? line.s : "");
	exit(UNKNOWN);
}

static int64_t
interval_of(const char *text)
{
	char	   *end;
	double		seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= 0.1 && seconds <= MAX_INTERVAL_S))
	{
		Buf			message = {0};

		buf_printf(&message, "-i %s: not a number of seconds in 0.1..%d", text, MAX_INTERVAL_S);
		fail(message.s);
	}
	return (int64_t) (seconds * 1000);
}

static const struct option long_options[] = {
	{"dbname", required_argument, NULL, 'd'},
	{"host", required_argument, NULL, 'h'},
	{"port", required_argument, NULL, 'p'},
	{"username", required_argument, NULL, 'U'},
	{"no-password", no_argument, NULL, 'w'},
	{"password", no_argument, NULL, 'W'},
	{"interval", required_argument, NULL, 'i'},
	{"once", no_argument, NULL, '1'},
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, '?' + 256},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0}
};

static void
take_option(int option)
{
	switch (option)
	{
		case 'd':
			values[DBNAME] = optarg;
			break;
		case 'h':
			values[HOST] = optarg;
			break;
		case 'p':
			values[PORT] = optarg;
			break;
		case 'U':
			values[USER] = optarg;
			break;
		case 'w':
			options.never_ask = true;
			break;
		case 'W':
			options.ask_first = true;
			break;
		case 'i':
			options.interval_ms = interval_of(optarg);
			break;
		case '1':
			options.once = true;
			break;
		case 'j':
			options.json = true;
			break;
		case 'V':
			puts("jobq-top " JOBQ_TOP_VERSION);
			exit(0);
		case '?' + 256:
			fputs(help, stdout);
			exit(0);
		default:
			fputs("jobq-top: --help lists the options\n", stderr);
			exit(UNKNOWN);
	}
}

static void
read_options(int argc, char **argv)
{
	int			option;

	while ((option = getopt_long(argc, argv, "d:h:p:U:wWi:V", long_options, NULL)) != -1)
		take_option(option);
	if (optind < argc)
		values[DBNAME] = argv[optind++];
	if (optind < argc)
		fail("too many arguments: --help lists the options");
	values[APPLICATION] = "jobq-top";
	values[ENCODING] = "UTF8";
}

static void
wait_for_link(void)
{
	int64_t		until;
	struct pollfd p;
	int64_t		ms;

	p.fd = link_wait(&p.events, &until);
	ms = until == NEVER ? 1000 : until - now_ms();
	poll(&p, 1, ms < 0 ? 0 : (int) ms);
	link_step();
}

static void
ask_password(void)
{
	values[PASSWORD] = terminal_password("Password: ");
	if (!values[PASSWORD])
		fail("there is no terminal to read a password from");
}

/* Connects, with a password if the server wants one; without a connection the program ends. */
static void
connect_first(void)
{
	if (options.ask_first)
		ask_password();
	for (;;)
	{
		int			losses = link_losses();

		link_open(keys, values, RETRY_MS);
		while (!link_is_idle() && link_losses() == losses)
			wait_for_link();
		if (link_is_idle())
			return;
		if (!link_needs_password() || options.never_ask || values[PASSWORD])
			fail(link_error());
		ask_password();
	}
}

/* Reads every part once and prints it. */
static int
print_once(void)
{
	Buf			out = {0};
	int			losses = link_losses();
	int			level;

	feed_setup(options.json);
	feed_round(true);
	while (!feed_at())
	{
		feed_step();
		if (!feed_at())
			wait_for_link();
		if (link_losses() != losses)
			fail(link_error());
	}
	level = verdict_level();
	if (options.json)
		json_output(&out);
	else
		screen_plain(&out);
	if (fputs(out.s, stdout) == EOF || fflush(stdout) == EOF)
		fail(strerror(errno));
	return level;
}

int
main(int argc, char **argv)
{
	int			ended;

	text_setup();
	read_options(argc, argv);
	connect_first();
	if (options.once || options.json)
		return print_once();
	ended = live_run(options.interval_ms);
	link_close();
	if (ended < 0)
		fail("standard input and output are no terminal: use --once or --json");
	if (ended > 0)
	{
		sigset_t	set;

		signal(ended, SIG_DFL);
		raise(ended);
		sigemptyset(&set);
		sigaddset(&set, ended);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
	}
	return 0;
}
