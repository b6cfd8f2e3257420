/*
 * session.h
 *	  Settings that every process of ours makes right after it has connected,
 *	  and transactions of the background ones.
 */
#ifndef JOBQ_SESSION_H
#define JOBQ_SESSION_H

extern void set_for_session(const char *name, const char *value);

/*
 * A role's or database's own timeouts, isolation and read-only mode would
 * strike bookkeeping: they are put back to the server's defaults for this
 * session; a handler may still SET them for itself.
 */
extern void neutralise_session(void);

/*
 * Calls what(arg) in a transaction of its own; its answer, or false: a table
 * was in use, try again later.
 */
extern bool try_transaction(const char *process, bool (*what) (void *), void *arg);

/*
 * Returns the directory below which jobq-helper makes the work directories of
 * tools.  When that is not safe, jobq-helper uses the data directory.
 */
extern const char *workdir_parent(void);

#endif
