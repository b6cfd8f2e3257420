/*
 * claim_session.c
 *	  Sessions with numbers: see claim_session.h.
 *
 * A number is in the session's place (claims.h) until the process exits; no
 * lock protects it.  The exit callback clears it and tells the dispatcher.
 */
#include "jobq.h"

#include "storage/ipc.h"

#include "shared/claim_session.h"

#define HAS_SESSION		0x80	/* bit of a token's first byte */
#define SESSION_BYTE	8		/* of a token: 4 bytes, before those of the role */

static uint32 mine = 0;
static JobqDb *my_database = NULL;

static void
end_session(int code, Datum arg)
{
	ClaimPlace *place = my_claim_place();
	pg_uuid_t	id = {0};

	if (place == NULL)
		return;
	pg_atomic_write_u32(&place->session, 0);
	memcpy(id.data, &mine, sizeof(mine));
	claim_tell(my_database, &id, LEASE_SESSION_GONE);
}

uint32
claim_session(void)
{
	ClaimPlace *place = my_claim_place();

	if (mine != 0 || place == NULL)
		return mine;
	my_database = my_db();
	while (mine == 0)
		mine = pg_atomic_add_fetch_u32(&JobqShmem->last_session, 1);
	pg_atomic_write_u32(&place->session, mine);
	before_shmem_exit(end_session, 0);
	return mine;
}

bool
claim_session_lives(uint32 session)
{
	for (int i = 0; i < JobqShmem->nclaims; i++)
	{
		if (pg_atomic_read_u32(&claim_place(i)->session) == session)
			return true;
	}
	return false;
}

void
token_set_session(pg_uuid_t *token, uint32 session)
{
	token->data[0] &= (unsigned char) ~HAS_SESSION;
	if (session == 0)
		return;
	token->data[0] |= HAS_SESSION;
	memcpy(token->data + SESSION_BYTE, &session, sizeof(session));
}

uint32
token_session(const pg_uuid_t *token)
{
	uint32		session = 0;

	if (token->data[0] & HAS_SESSION)
		memcpy(&session, token->data + SESSION_BYTE, sizeof(session));
	return session;
}
