/*
 * common.c
 *	  Common functions of the benchmark's programs.
 *
 * Any error ends the program: a reading with an error is invalid.
 */
#include "common.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *program_name = "bench";

void
set_program_name(const char *name)
{
	program_name = name;
}

/* Called by any thread: _exit(), as exit() frees objects that other threads still use. */
void
die(const char *format,...)
{
	va_list		args;

	flockfile(stderr);
	fprintf(stderr, "%s: ", program_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	fflush(stderr);
	_exit(1);
}

void *
allocate(size_t size)
{
	void	   *memory = malloc(size > 0 ? size : 1);

	if (memory == NULL)
		die("out of memory");
	return memory;
}

static void
set_option(const Option *option, const char *value)
{
	char	   *end = "";

	switch (option->kind)
	{
		case OPT_FLAG:
			*(bool *) option->target = true;
			break;
		case OPT_COUNT:
			*(int64_t *) option->target = strtoll(value, &end, 10);
			break;
		case OPT_NUMBER:
			*(double *) option->target = strtod(value, &end);
			break;
		case OPT_TEXT:
			*(const char **) option->target = value;
			break;
	}
	if (*end != '\0' || (option->kind != OPT_TEXT && value != NULL && *value == '\0'))
		die("--%s: \"%s\" is not a number", option->name, value);
}

/* Takes "--name value" from argv[first] on; the index of what follows the options or "--". */
int
parse_options(int argc, char **argv, int first, const Option *options)
{
	int			i;

	for (i = first; i < argc && strncmp(argv[i], "--", 2) == 0; i++)
	{
		const Option *option = options;

		if (argv[i][2] == '\0')
			return i + 1;
		while (option->name != NULL && strcmp(option->name, argv[i] + 2) != 0)
			option++;
		if (option->name == NULL)
			die("unknown option %s", argv[i]);
		if (option->kind == OPT_FLAG)
			set_option(option, NULL);
		else if (++i < argc)
			set_option(option, argv[i]);
		else
			die("--%s needs a value", option->name);
	}
	return i;
}

double
epoch_of(struct timespec ts)
{
	return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}

double
epoch_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return epoch_of(ts);
}

struct timespec
timespec_after(struct timespec ts, double seconds)
{
	int64_t		ns = ts.tv_nsec + (int64_t) (seconds * 1e9);

	ts.tv_sec += ns / 1000000000;
	ts.tv_nsec = ns % 1000000000;
	return ts;
}

double
cpu_seconds(int who)
{
	struct rusage u;

	getrusage(who, &u);
	return (double) (u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double) (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int
compare_doubles(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

void
sort_doubles(double *values, int64_t n)
{
	qsort(values, n, sizeof(double), compare_doubles);
}

/* The smallest value that at least the share p of all values does not exceed. */
double
percentile(const double *sorted, int64_t n, double p)
{
	int64_t		rank = (int64_t) (p * (double) n);

	if (n == 0)
		return 0;
	if ((double) rank < p * (double) n)
		rank++;
	return sorted[rank > 0 ? rank - 1 : 0];
}

PGconn *
connect_or_die(void)
{
	PGconn	   *conn = PQconnectdb("");

	if (PQstatus(conn) != CONNECTION_OK)
		die("%s", PQerrorMessage(conn));
	return conn;
}

/* Frees the result of a command that must have worked. */
void
expect_ok(PGconn *conn, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_PIPELINE_SYNC)
		die("%s", result != NULL ? PQresultErrorMessage(result) : PQerrorMessage(conn));
	PQclear(result);
}

void
execute(PGconn *conn, const char *sql)
{
	expect_ok(conn, PQexec(conn, sql));
}

void
prepare(PGconn *conn, const char *name, const char *sql)
{
	expect_ok(conn, PQprepare(conn, name, sql, 0, NULL));
}
