/*
 * common.h
 *	  Common functions of the benchmark's programs: clocks, options,
 *	  percentiles, libpq calls that exit on errors.
 */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <libpq-fe.h>

/* A long option.  A flag takes no value; the last of a table has no name. */
typedef struct Option
{
	const char *name;
	enum {OPT_FLAG, OPT_COUNT, OPT_NUMBER, OPT_TEXT} kind;
	void	   *target;			/* bool, int64_t, double, const char * */
} Option;

extern void die(const char *format,...) __attribute__((noreturn, format(printf, 1, 2)));
extern void set_program_name(const char *name);
extern void *allocate(size_t size);
extern int	parse_options(int argc, char **argv, int first, const Option *options);

extern double epoch_now(void);
extern double epoch_of(struct timespec ts);
extern struct timespec timespec_after(struct timespec ts, double seconds);
extern double cpu_seconds(int who);

extern void sort_doubles(double *values, int64_t n);
extern double percentile(const double *sorted, int64_t n, double p);

extern PGconn *connect_or_die(void);
extern void expect_ok(PGconn *conn, PGresult *result);
extern void execute(PGconn *conn, const char *sql);
extern void prepare(PGconn *conn, const char *name, const char *sql);

#endif
