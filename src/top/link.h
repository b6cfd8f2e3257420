/*
 * link.h
 *	  The connection to PostgreSQL, without waiting for it.
 */
#ifndef JOBQ_TOP_LINK_H
#define JOBQ_TOP_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

#define NEVER INT64_MAX

extern int64_t now_ms(void);

/*
 * Begins to connect; the arrays of PQconnectStartParams stay the caller's.
 * A lost connection is opened anew after retry_ms.
 */
extern void link_open(const char *const *keys, const char *const *values, int64_t retry_ms);
extern void link_close(void);

/* The socket and the events to wait for, -1: none; the time of the next link_step. */
extern int	link_wait(short *events, int64_t *until);
extern void link_step(void);

extern bool link_is_idle(void);

/* The reason why there is no connection, or NULL. */
extern const char *link_error(void);
extern bool link_needs_password(void);

/* How often a connection was lost or refused: work that was begun before is lost. */
extern int	link_losses(void);

/* Sends a statement with one parameter, or none (NULL); the link must be idle. */
extern void link_ask(const char *sql, const char *parameter);

/* Takes the answer; NULL: there is none yet.  The caller frees it. */
extern PGresult *link_take(void);

/* "database on host:port", as it is connected. */
extern const char *link_place(void);

#endif
