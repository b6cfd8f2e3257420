/*
 * role_state.c
 *	  The roles that jobs run as, as the dispatcher has read them: which wait
 *	  for a worker, why there is none.
 */
#include "jobq.h"

#include "catalog/pg_authid.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "limits/role_state.h"

static HTAB *roles = NULL;
dlist_head	all_roles = DLIST_STATIC_INIT(all_roles);
static bool changed = false;

/*
 * Notes that a role, or a role's right to connect, was made, changed or
 * dropped.
 */
static void
note_role_change(Datum arg, int cacheid, uint32 hashvalue)
{
	changed = true;
}

bool
roles_changed(void)
{
	bool		was = changed;

	changed = false;
	return was;
}

void
roles_init(MemoryContext context)
{
	HASHCTL		ctl;

	CacheRegisterSyscacheCallback(AUTHOID, note_role_change, (Datum) 0);
	CacheRegisterSyscacheCallback(DATABASEOID, note_role_change, (Datum) 0);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(RoleState);
	ctl.hcxt = context;
	roles = hash_create("jobq dispatcher roles", 32, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

RoleState *
role_state(Oid roleid)
{
	bool		found;
	RoleState  *r = hash_search(roles, &roleid, HASH_ENTER, &found);

	if (!found)
	{
		memset((char *) r + sizeof(Oid), 0, sizeof(RoleState) - sizeof(Oid));
		wait_queue_init(&r->wait_queue);
		dlist_push_tail(&all_roles, &r->all);
	}
	return r;
}

void
roles_trouble(char *buf, int size)
{
	dlist_iter	it;

	dlist_foreach(it, &all_roles)
	{
		RoleState  *r = dlist_container(RoleState, all, it.cur);

		if (r->failures == 0 || r->waiting_since == 0)
			continue;
		if (r->roleid == EXEC_ROLE)
			snprintf(buf, size, "the exec worker does not start: see the server log");
		else
			snprintf(buf, size, "no worker can connect as role \"%s\": see the server log", r->name);
	}
}
