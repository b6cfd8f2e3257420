/*
 * fake_quotas.h
 *	  Fabricated tables: max_running of tenants, and rows of the queue as slots.
 */
#ifndef UNIT_FAKE_QUOTAS_H
#define UNIT_FAKE_QUOTAS_H

#include "server.h"

#include "executor/tuptable.h"

#define NTENANTS	6

extern const char *const tenants[NTENANTS];
extern int	quotas[NTENANTS];	/* max_running; -1: none */
extern bool tables_locked;		/* by another session */

/* Returns a row of the queue, valid until the next call; tenant -1: it has none. */
extern TupleTableSlot *slot_of(int type_id, int tenant);

#endif
