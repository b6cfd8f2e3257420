/*
 * release.h
 *	  Compares the installed SQL with the library, which runs that of its own
 *	  release only.
 *
 * Between a restart with another library and ALTER EXTENSION jobq UPDATE no
 * job is handed out, and calls fail with 55000.  Scripts of extensions are
 * exempt: they install or update that SQL.
 */
#ifndef JOBQ_RELEASE_H
#define JOBQ_RELEASE_H

/*
 * Returns a message with both versions and the remedy if the installed SQL is
 * of another release; else NULL.
 */
extern const char *release_trouble(void);
/* The same as an error, 55000. */
extern void release_require(void);
/* The same for a worker that has just connected, outside a transaction. */
extern void release_require_of_worker(void);

#endif
