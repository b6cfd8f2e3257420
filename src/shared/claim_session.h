/*
 * claim_session.h
 *	  The sessions whose end ends their leases
 *	  (options.lease_follows_connection).
 *
 * Such a session has a number, which its lease tokens carry.  Numbers begin at
 * another value after each start of the server, so a token of a former run
 * names no session.
 */
#ifndef JOBQ_CLAIM_SESSION_H
#define JOBQ_CLAIM_SESSION_H

#include "utils/uuid.h"

#include "shared/claims.h"

/* Returns this session's number; from then on its end is published. */
extern uint32 claim_session(void);
/* True if a session has that number. */
extern bool claim_session_lives(uint32 session);

/* Write the number, or 0, into a token that is random so far; read it. */
extern void token_set_session(pg_uuid_t *token, uint32 session);
extern uint32 token_session(const pg_uuid_t *token);

#endif
