/*
 * session.h
 *	  What every process of ours sets right after it has connected.
 */
#ifndef JOBQ_SESSION_H
#define JOBQ_SESSION_H

extern void set_for_session(const char *name, const char *value);
/*
 * A role's or database's own timeouts, isolation and read-only mode would strike bookkeeping: they are put
 * back to the server's defaults for this session; a handler may still SET them for itself.
 */
extern void neutralise_session(void);

#endif
