/*
 * stray_connections.h
 *	  Connections that handlers open with dblink and leave open.
 */
#ifndef JOBQ_STRAY_CONNECTIONS_H
#define JOBQ_STRAY_CONNECTIONS_H

/* Before the first handler. */
extern void stray_connections_init(void);

/* After a handler, in its batch's transaction: true if one has left a connection open. */
extern bool find_stray_connections(void);

/* What that has found. */
extern bool stray_connections_found(void);

#endif
