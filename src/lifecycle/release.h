/*
 * release.h
 *	  The releases of the extension's SQL that this library works with.
 *
 * A library works with the SQL of its own release and of the one before, so
 * that a server can be restarted before or after ALTER EXTENSION jobq UPDATE.
 * With any other no job runs, and client functions fail with 55000.
 */
#ifndef JOBQ_RELEASE_H
#define JOBQ_RELEASE_H

/*
 * Returns a message with versions and remedy if the installed one is neither
 * the library's nor the one before; else NULL.
 */
extern const char *release_trouble(void);
/* The same as an error, 55000. */
extern void release_require(void);
/* The same for a worker that has just connected, outside a transaction. */
extern void release_require_of_worker(void);
/* True if the installed SQL is of the previous release. */
extern bool release_is_previous(void);

#endif
