/*
 * conductor_held.c
 *	  Work that is put aside: see conductor_held.h.
 *
 * A lock may be held for hours, and by one transaction on many rows.  The pause
 * between tries grows up to PAUSE_MAX_US, and single tries that fail are REST_US
 * apart, so that neither one row nor a thousand keep the conductor busy.  When
 * one can be done, the transaction that held it has ended, and often held the
 * others.
 */
#include "jobq.h"

#include "utils/timestamp.h"

#include "schedule/conductor_held.h"

#define PAUSE_US		INT64CONST(100000)	/* the first one */
#define PAUSE_MAX_US	(2 * USECS_PER_SEC)
#define FAILED_US		(10 * USECS_PER_SEC)
#define REST_US			INT64CONST(50000)

void
held_init(HeldList *list, MemoryContext context, const char *name, Size entry)
{
	HASHCTL		control = {.keysize = UUID_LEN, .entrysize = entry, .hcxt = context};

	list->table = hash_create(name, 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	list->rest = 0;
}

bool
held_is_empty(const HeldList *list)
{
	return hash_get_num_entries(list->table) == 0;
}

void *
held_put(HeldList *list, const pg_uuid_t *id, bool transient)
{
	MonoTime	now = mono_now();
	bool		found;
	Held	   *held = hash_search(list->table, id, HASH_ENTER, &found);

	if (!found)
		held->pause = 0;
	held->tried = now;
	held->pause = !transient ? 0 : held->pause == 0 ? PAUSE_US : Min(held->pause * 2, PAUSE_MAX_US);
	held->since = now + (transient ? held->pause : FAILED_US);
	list->rest = now + REST_US;
	return held;
}

bool
held_news(HeldList *list, const pg_uuid_t *id)
{
	Held	   *held = held_is_empty(list) ? NULL : hash_search(list->table, id, HASH_FIND, NULL);

	if (held == NULL)
		return false;
	held->since = Min(held->since, held->tried + PAUSE_US);
	return true;
}

void
held_done(HeldList *list, const pg_uuid_t *id)
{
	HASH_SEQ_STATUS status;
	Held	   *held;

	if (held_is_empty(list) || hash_search(list->table, id, HASH_REMOVE, NULL) == NULL)
		return;
	list->rest = 0;
	hash_seq_init(&status, list->table);
	while ((held = hash_seq_search(&status)) != NULL)
	{
		if (held->pause > 0 && held->since != DT_NOEND)
			held->since = Min(held->since, mono_now());
	}
}

static Held *
find_first(HeldList *list)
{
	HASH_SEQ_STATUS status;
	Held	   *first = NULL;
	Held	   *held;

	if (held_is_empty(list))
		return NULL;
	hash_seq_init(&status, list->table);
	while ((held = hash_seq_search(&status)) != NULL)
	{
		if (first == NULL || held->since < first->since)
			first = held;
	}
	return first;
}

void *
held_due(HeldList *list)
{
	MonoTime	now = mono_now();
	Held	   *first = now < list->rest ? NULL : find_first(list);

	return first != NULL && first->since <= now ? first : NULL;
}

MonoTime
held_next(HeldList *list)
{
	Held	   *first = find_first(list);

	return first == NULL || first->since == DT_NOEND ? DT_NOEND : Max(first->since, list->rest);
}
