/*
 * concurrency_keys.c
 *	  Concurrency keys: at most so many jobs of one key and tenant run at once,
 *	  whatever their types.
 *
 * Every cell of an executor counts, from hand-out until the dispatcher has
 * read the report of its end, that is, until that is committed.  So a new
 * dispatcher counts again from the slots.  A job that lost its executor counts
 * until it is settled.  Where types differ, the smallest concurrency_per_key
 * of the running jobs and of the candidate counts.
 *
 * A job of a full key does not stay in memory.  It is passed over, its lane
 * goes on, and the key keeps the position from which on that lane has such
 * jobs (KeyLane.from).  When a job of the key ends, as many as may start are
 * read from there by an index that begins with the key.  So a crowd of a key
 * costs neither memory nor time.  A lane's memory never holds more jobs of a
 * key than could start.  They compete as all jobs do; one that does not start
 * is passed over again.
 *
 * key_order = fifo: such a job starts only when no live job of its key was
 * created before it.  A second index is searched for that when the job is read
 * and again when it is its turn.  The dispatcher keeps nothing of the jobs
 * that wait: whenever a job of a key ends, or is removed by a client
 * (note_concurrency_key), the first one is looked up.  first_from is the
 * position before which the index holds no live entry of the key; a commit
 * that writes an older one publishes that.  While another session holds the
 * row of the first job, the job is not offered again and again (busy): it is
 * read when it is published.  A commit that removes jobs of more keys than it
 * can name has the lanes of such types read again.
 *
 * Memory: an entry for each key that runs or has jobs in a lane's memory, and
 * up to MAX_IDLE others for first_from.
 */
#include "jobq.h"

#include "utils/memutils.h"

#include "lanes/lane_callbacks.h"
#include "limits/concurrency_keys.h"

#define MAX_IDLE	4096

static MemoryContext keys_context = NULL;
static HTAB *keys = NULL;
static int	(*limit_of_running) (uint64 hash);	/* the smallest limit of the running jobs of a key */
static dlist_head changed = DLIST_STATIC_INIT(changed);
static dlist_head idle = DLIST_STATIC_INIT(idle);	/* the oldest first */
static int	nidle = 0;
static bool wants_scan = false; /* a job in order waits because the queue could not be read */
static bool order_lost = false; /* jobs of unknown keys may be the first of theirs now */

/* ---------- entries ---------- */

static Key *
find_key(uint64 hash)
{
	return hash_search(keys, &hash, HASH_FIND, NULL);
}

static void
end_idleness(Key *key)
{
	if (!key->idle)
		return;
	dlist_delete(&key->node);
	key->idle = false;
	nidle--;
}

static Key *
get_key(uint64 hash)
{
	bool		found;
	Key		   *key = hash_search(keys, &hash, HASH_ENTER, &found);

	if (!found)
	{
		memset((char *) key + sizeof(uint64), 0, sizeof(Key) - sizeof(uint64));
		dlist_init(&key->lanes);
		key->first_from = DT_NOBEGIN;
	}
	end_idleness(key);
	return key;
}

/*
 * Frees the entry if it is of no more use: called after a part of it was
 * removed.
 */
static void
put_key(Key *key)
{
	if (key->running > 0 || key->unsettled > 0 || key->changed || key->idle || key->in_use ||
		!dlist_is_empty(&key->lanes))
		return;
	if (key->first_from == DT_NOBEGIN)
	{
		hash_search(keys, &key->hash, HASH_REMOVE, NULL);
		return;
	}
	key->idle = true;
	dlist_push_tail(&idle, &key->node);
	if (++nidle > MAX_IDLE)
	{
		Key		   *oldest = dlist_container(Key, node, dlist_head_node(&idle));

		end_idleness(oldest);
		hash_search(keys, &oldest->hash, HASH_REMOVE, NULL);
	}
}

static void
note_change(Key *key)
{
	if (key->changed || (dlist_is_empty(&key->lanes) && !types_keep_order))
		return;
	end_idleness(key);
	key->changed = true;
	dlist_push_tail(&changed, &key->node);
}

static KeyLane *
find_lane(Key *key, const Lane *lane)
{
	dlist_iter	it;

	dlist_foreach(it, &key->lanes)
	{
		KeyLane    *kl = dlist_container(KeyLane, node, it.cur);

		if (kl->lane == lane)
			return kl;
	}
	return NULL;
}

static KeyLane *
get_lane(Key *key, Lane *lane)
{
	KeyLane    *kl = find_lane(key, lane);

	if (kl == NULL)
	{
		kl = MemoryContextAllocZero(keys_context, sizeof(KeyLane));
		kl->lane = lane;
		dlist_push_tail(&key->lanes, &kl->node);
	}
	return kl;
}

static void
put_lane(KeyLane *kl)
{
	if (kl->waiting > 0 || kl->passed)
		return;
	dlist_delete(&kl->node);
	pfree(kl);
}

static void
pass_over(Key *key, Lane *lane, const JobRef *ref)
{
	KeyLane    *kl = get_lane(key, lane);

	if (kl->passed && ref->position > kl->from.pos)
		return;					/* of equal ones ref->tid is no help: HOT, the index entry has another */
	kl->passed = true;
	kl->from.pos = ref->position;
	memset(&kl->from.tid, 0, sizeof(kl->from.tid)); /* from the first row of that position on */
}

/* ---------- counting ---------- */

/* True if the attempt has begun and its end is not written yet. */
static bool
is_unsettled(const JobRef *ref)
{
	return ref->charge != CHARGE_NONE;
}

/* Returns how many more jobs of that type may start. */
static int
room_of(Key *key, TypeState *t)
{
	int			limit = t->per_key;

	if (key == NULL)
		return limit;
	if (key->running > 0 && key->limit == 0)
		key->limit = limit_of_running(key->hash);
	if (key->running > 0)
		limit = Min(limit, key->limit);
	return limit - key->running - key->unsettled;
}

static void
key_enter(Lane *lane, const JobRef *ref)
{
	Key		   *key = get_key(ref->key);

	if (is_unsettled(ref))
		key->unsettled++;
	else
		get_lane(key, lane)->waiting++;
}

static void
key_leave(Lane *lane, const JobRef *ref)
{
	Key		   *key = get_key(ref->key);

	if (is_unsettled(ref))
		key->unsettled--;
	else
	{
		KeyLane    *kl = get_lane(key, lane);

		kl->waiting--;
		put_lane(kl);
	}
	put_key(key);
}

static void
key_lost(const JobRef *ref)
{
	Key		   *key = get_key(ref->key);

	note_change(key);
	put_key(key);
}

void
key_take(const JobRef *ref, TypeState *t)
{
	Key		   *key;

	if (ref->flags & REF_CANCEL)
		return;
	key = get_key(ref->key);
	if (key->running++ == 0)
		key->limit = t->per_key;
	else
		key->limit = Min(key->limit, t->per_key);
}

void
key_give_back(const JobRef *ref, TypeState *t)
{
	Key		   *key = get_key(ref->key);

	if ((ref->flags & REF_CANCEL) == 0)
	{
		key->running--;
		if (t->per_key <= key->limit)
			key->limit = 0;
	}
	note_change(key);
	put_key(key);
}

void
key_not_had(const JobRef *ref)
{
	Key		   *key = get_key(ref->key);

	key->has_busy = true;
	key->busy = ref->id;
	put_key(key);
}

bool
key_is_busy(const Key *key, const pg_uuid_t *id)
{
	return key->has_busy && memcmp(&key->busy, id, sizeof(pg_uuid_t)) == 0;
}

/* ---------- changes by commits and the registry ---------- */

static void
change_all(void)
{
	HASH_SEQ_STATUS status;
	Key		   *key;

	hash_seq_init(&status, keys);
	while ((key = hash_seq_search(&status)) != NULL)
		note_change(key);
}

void
keys_reload(void)
{
	HASH_SEQ_STATUS status;
	Key		   *key;

	hash_seq_init(&status, keys);
	while ((key = hash_seq_search(&status)) != NULL)
		key->limit = 0;
	change_all();
}

void
keys_suspect(void)
{
	HASH_SEQ_STATUS status;
	Key		   *key;

	hash_seq_init(&status, keys);
	while ((key = hash_seq_search(&status)) != NULL)
		key->first_from = DT_NOBEGIN;
	change_all();
}

bool
keys_lost_order(void)
{
	bool		was = order_lost;

	order_lost = false;
	return was;
}

void
keys_published(uint64 hash, TimestampTz since, bool removed)
{
	Key		   *key;

	if (hash == 0)
	{
		keys_suspect();
		order_lost |= removed && types_keep_order;
		return;
	}
	key = removed && types_keep_order ? get_key(hash) : find_key(hash);
	if (key == NULL)
		return;
	key->first_from = Min(key->first_from, since);
	key->has_busy = false;
	if (removed)
		note_change(key);
	put_key(key);
}

void
keys_forget_lanes(void)
{
	HASH_SEQ_STATUS status;
	Key		   *key;

	hash_seq_init(&status, keys);
	while ((key = hash_seq_search(&status)) != NULL)
	{
		dlist_mutable_iter it;

		dlist_foreach_modify(it, &key->lanes)
			pfree(dlist_container(KeyLane, node, it.cur));
		dlist_init(&key->lanes);
		key->unsettled = 0;
		key->first_from = DT_NOBEGIN;
		end_idleness(key);
		if (key->changed)
			dlist_delete(&key->node);
		key->changed = false;
		put_key(key);
	}
}

/* ---------- jobs that may start ---------- */

static bool
is_first(QueueScan *scan, const JobRef *ref)
{
	Key		   *key = get_key(ref->key);
	bool		first = key_scan_is_first(scan, key, ref);

	put_key(key);
	return first;
}

static bool
key_admits(QueueScan *scan, Lane *lane, const JobRef *ref)
{
	Key		   *key = find_key(ref->key);
	KeyLane    *kl = key != NULL ? find_lane(key, lane) : NULL;
	int			room = room_of(key, type_of(lane->type));

	if (key != NULL && key_is_busy(key, &ref->id))
		key->has_busy = false;	/* it has been published, and so is read */
	if (is_unsettled(ref))
		return true;
	if (type_of(lane->type)->keeps_order)
		return room > 0 && is_first(scan, ref);
	if (room > (kl != NULL ? kl->waiting : 0))
		return true;
	pass_over(get_key(ref->key), lane, ref);
	return false;
}

KeyAnswer
key_asks(QueueScan *scan, Lane *lane, const JobRef *ref)
{
	if (ref_settles(ref))
		return KEY_MAY_START;
	if (room_of(find_key(ref->key), type_of(lane->type)) <= 0)
		return KEY_PASS;
	if (!type_of(lane->type)->keeps_order)
		return KEY_MAY_START;
	if (scan == NULL)
	{
		wants_scan = true;
		return KEY_UNKNOWN;
	}
	return is_first(scan, ref) ? KEY_MAY_START : KEY_PASS;
}

void
key_pass(Lane *lane)
{
	JobRef		ref;
	Known	   *known;

	lane_pop(lane, &ref);
	if ((known = known_lookup(known_jobs, ref.id)) != NULL)
		known_delete_item(known_jobs, known);
	if (!type_of(lane->type)->keeps_order)
		pass_over(get_key(ref.key), lane, &ref);
}

/* ---------- one turn ---------- */

bool
keys_pending(void)
{
	return wants_scan || order_lost || !dlist_is_empty(&changed);
}

static void
look_at(QueueScan *scan, Key *key)
{
	dlist_mutable_iter it;

	dlist_foreach_modify(it, &key->lanes)
	{
		KeyLane    *kl = dlist_container(KeyLane, node, it.cur);
		int			room = room_of(key, type_of(kl->lane->type)) - kl->waiting;

		if (!kl->passed || room <= 0)
			continue;
		kl->passed = key_scan_passed(scan, key, kl, room);
		put_lane(kl);
	}
	if (types_keep_order)
		key_scan_first(scan, key);
}

void
keys_turn(QueueScan *scan)
{
	wants_scan = false;
	while (!dlist_is_empty(&changed))
	{
		Key		   *key = dlist_container(Key, node, dlist_pop_head_node(&changed));

		key->changed = false;
		key->in_use = true;
		look_at(scan, key);
		key->in_use = false;
		put_key(key);
	}
}

/* ---------- the start ---------- */

void
keys_init(MemoryContext context, int (*smallest_limit) (uint64 hash))
{
	HASHCTL		ctl;

	keys_context = AllocSetContextCreate(context, "jobq concurrency keys", ALLOCSET_DEFAULT_SIZES);
	ctl.keysize = sizeof(uint64);
	ctl.entrysize = sizeof(Key);
	ctl.hcxt = keys_context;
	keys = hash_create("jobq concurrency keys", 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	limit_of_running = smallest_limit;
	key_callbacks.enter = key_enter;
	key_callbacks.leave = key_leave;
	key_callbacks.lost = key_lost;
	key_callbacks.admits = key_admits;
	dlist_init(&changed);
	dlist_init(&idle);
	nidle = 0;
}
