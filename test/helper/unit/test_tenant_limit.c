/*
 * test_tenant_limit.c
 *	  max_running of tenants, beside a model that counts anew: no job starts
 *	  beyond a limit, and none waits that could start.
 *
 *	  test_tenant_limit [STEPS [SEED]]
 *
 * The lanes and limits are the real ones, the queue is an array of rows.  Jobs
 * of type 0 run in SQL workers, those of type 1 are tools.
 */
#include "fake_quotas.h"

#include "utils/memutils.h"

#include "lanes/lane_callbacks.h"
#include "limits/tenant_limit.h"
#include "limits/type_state.h"

#define NWORKERS	3
#define TOOLS		NWORKERS	/* the executor of tools */
#define NTYPES		2
#define MAX_ROWS	20000
#define TURN_ENTRIES	2000	/* READ_ENTRIES */

typedef struct Row
{
	JobRef		ref;
	int			tenant;			/* -1: none */
	int			executor;		/* -1: it waits */
} Row;

static Row	rows[MAX_ROWS];
static int	nrows;
static int	serial;				/* of the last row, and its TID */
static TypeState types[NTYPES];
static MemoryContext context;
static bool in_short_runs;
static int	entries;			/* of the index that were read for jobs passed over */

/* ---------- types ---------- */

TypeState *
type_state(int32 id)
{
	return &types[id];
}

bool
type_is_short(TypeState *t)
{
	return in_short_runs;
}

static LaneType *
lane_type(int32 id)
{
	return &types[id].lanes;
}

/* ---------- reading lanes ---------- */

static int
tid_number(const ItemPointerData *tid)
{
	return (int) ItemPointerGetBlockNumberNoCheck(tid);
}

/* Returns the lane's next row in the order of the index; NULL: none. */
static Row *
next_row(const Lane *lane, const Range *at, TimestampTz hi)
{
	Row		   *next = NULL;

	for (Row *row = rows; row < rows + nrows; row++)
	{
		if (row->ref.type_id != lane->id.type_id || row->ref.priority != lane->id.priority || row->ref.position > hi ||
			row->ref.position < at->pos ||
			(row->ref.position == at->pos && tid_number(&row->ref.tid) <= tid_number(&at->tid)))
			continue;
		if (next == NULL || row->ref.position < next->ref.position ||
			(row->ref.position == next->ref.position && tid_number(&row->ref.tid) < tid_number(&next->ref.tid)))
			next = row;
	}
	return next;
}

static bool
take(Lane *lane, Row *row, bool from_cursor)
{
	JobRef		ref = row->ref;

	ref.tenant_limit = tenant_callbacks.limit_of(slot_of(row->ref.type_id, row->tenant));
	return lane_add(lane, &ref, from_cursor);
}

bool
scan_passed(QueueScan *scan, Lane *lane, Range *at, WantsRow wanted, const void *arg, int n, int *budget)
{
	while (n > 0 && *budget > 0)
	{
		Row		   *row = next_row(lane, at, Min(lane->cursor.pos, scan->now));

		if (row == NULL)
			return false;
		at->pos = row->ref.position;
		at->tid = row->ref.tid;
		(*budget)--;
		entries++;
		if (wanted(slot_of(row->ref.type_id, row->tenant), arg) && take(lane, row, false))
			n--;
	}
	return true;
}

/* Reads the next rows from the cursor; false: these were the last ones. */
static bool
read_cursor(Lane *lane)
{
	int			n = 1 + below(5);
	Row		   *row = NULL;

	lane_unplace(lane);
	while (n-- > 0 && (row = next_row(lane, &lane->cursor, DT_NOEND)) != NULL)
	{
		lane->cursor.pos = row->ref.position;
		lane->cursor.tid = row->ref.tid;
		(void) take(lane, row, true);
	}
	lane_place(lane, clock_now);
	return row != NULL;
}

static Lane *
get_lane(int type, int priority)
{
	LaneId		id = {type, (int16) priority, 0};

	return lane_get(&id, lane_type);
}

/* ---------- the model ---------- */

/* True if the tenant is this one, or below it. */
static bool
is_below(int tenant, int above)
{
	size_t		len = strlen(tenants[above]);

	return tenant >= 0 && strncmp(tenants[tenant], tenants[above], len) == 0 &&
		(tenants[tenant][len] == '\0' || tenants[tenant][len] == '/');
}

/* True if one more job of the tenant may start in that executor; TOOLS: beside no other. */
static bool
model_has_room(int tenant, int executor)
{
	for (int above = 0; above < NTENANTS; above++)
	{
		int			n = 0;
		bool		works[NWORKERS + 1] = {false};

		if (quotas[above] < 0 || !is_below(tenant, above))
			continue;
		for (Row *row = rows; row < rows + nrows; row++)
		{
			if (row->executor < 0 || !is_below(row->tenant, above))
				continue;
			n += row->executor == TOOLS || !works[row->executor];
			works[row->executor] = true;
		}
		if (n >= quotas[above] && (executor == TOOLS || !works[executor]))
			return false;
	}
	return true;
}

/* ---------- the dispatcher ---------- */

static Row *
find_row(const pg_uuid_t *id)
{
	for (Row *row = rows; row < rows + nrows; row++)
	{
		if (memcmp(&row->ref.id, id, sizeof(pg_uuid_t)) == 0)
			return row;
	}
	return NULL;
}

/* Returns an executor with room; -1: none.  Clears *ok unless the model agrees. */
static int
choose_executor(const JobRef *ref, int tenant, bool *ok)
{
	bool		tool = ref->type_id == 1;
	int			first = below(NWORKERS);
	int			chosen = -1;

	for (int i = 0; i < (tool ? 1 : NWORKERS); i++)
	{
		int			executor = tool ? TOOLS : (first + i) % NWORKERS;
		bool		room = tenant_limit_has_room(ref, executor, tool);

		*ok &= room == model_has_room(tenant, executor);
		if (room)
			chosen = executor;
	}
	return chosen;
}

/* Hands out the lane's head, or passes it. */
static bool
try_head(Lane *lane)
{
	JobRef		ref = *lane_head(lane);
	Row		   *row = find_row(&ref.id);
	bool		ok = true;
	int			executor = row ? choose_executor(&ref, row->tenant, &ok) : -1;

	lane_unplace(lane);
	if (row != NULL && executor < 0)
		tenant_limit_pass(lane);
	else
	{
		lane_pop(lane, &ref);
		if (row == NULL)
		{
			known_delete_item(known_jobs, known_lookup(known_jobs, ref.id));
			tenant_callbacks.lost(&ref);
		}
		else
		{
			known_lookup(known_jobs, ref.id)->where = IN_FLIGHT;
			row->ref.tenant_limit = ref.tenant_limit;
			row->executor = executor;
			tenant_limit_up(&ref, executor, executor == TOOLS);
		}
	}
	lane_place(lane, clock_now);
	return ok;
}

/* Does all that can be done; false: something was wrong. */
static bool
dispatch(void)
{
	QueueScan	scan = {.now = clock_now};
	bool		ok = true;
	int			rounds = 0;

	do
	{
		int			before = entries;

		tenant_limits_turn(&scan);
		ok &= entries - before <= TURN_ENTRIES;
		for (int i = 0; i < NTYPES * 2; i++)
		{
			Lane	   *lane = get_lane(i % NTYPES, i / NTYPES);

			bool		more = true;

			while (ok && (lane_head(lane) != NULL || more))
			{
				if (lane_head(lane) != NULL)
					ok &= try_head(lane);
				else
					more = read_cursor(lane);
			}
		}
	} while (ok && tenant_limits_pending() && ++rounds < 1000);
	return ok && !tenant_limits_pending() && lanes_waiting() == 0;
}

/*
 * True if no job waits for which all limits have room.  A job that could only
 * join others in their worker may wait: few of them are read (READ_SHORT).
 */
static bool
none_could_start(void)
{
	for (Row *row = rows; row < rows + nrows; row++)
	{
		if (row->executor < 0 && model_has_room(row->tenant, TOOLS))
			return false;
	}
	return true;
}

static void
end_row(int i)
{
	Row			row = rows[i];

	rows[i] = rows[--nrows];
	if (row.executor < 0)
		return;					/* cancelled */
	known_delete_item(known_jobs, known_lookup(known_jobs, row.ref.id));
	tenant_limit_down(&row.ref, row.executor, row.executor == TOOLS);
}

/* Enqueues a job; a late one is published at or below its lane's cursor. */
static void
add_row(int type, int priority, int tenant, TimestampTz position)
{
	Row		   *row = &rows[nrows++];
	Lane	   *lane = get_lane(type, priority);

	*row = (Row) {.tenant = tenant, .executor = -1};
	row->ref.type_id = type;
	row->ref.priority = (int16) priority;
	row->ref.position = position;
	ItemPointerSet(&row->ref.tid, ++serial, 1);
	memcpy(&row->ref.id, &serial, sizeof(serial));
	if (position > lane->cursor.pos)
		return;
	lane_unplace(lane);
	(void) take(lane, row, false);
	lane_place(lane, clock_now);
}

/* Reads the quotas; as dispatcher_turn.c, counts and reads all again if they have changed. */
static void
read_quotas_again(void)
{
	tenant_limits_suspect();
	if (!tenant_limits_refresh())
		return;
	for (Row *row = rows; row < rows + nrows; row++)
	{
		row->ref.tenant_limit = tenant_callbacks.limit_of(slot_of(row->ref.type_id, row->tenant));
		if (row->executor >= 0)
			tenant_limit_up(&row->ref, row->executor, row->executor == TOOLS);
	}
	tenant_limits_forget_lanes();
	lanes_reset();
}

static void
start_dispatcher(void)
{
	nrows = entries = 0;
	in_short_runs = false;
	context = AllocSetContextCreate(CurrentMemoryContext, "dispatcher", ALLOCSET_DEFAULT_SIZES);
	lanes_init(context, NULL);
	tenant_limits_init(context, NULL);
	for (int i = 0; i < NTYPES; i++)
		types[i].id = i;
	for (int i = 0; i < NTENANTS; i++)
		quotas[i] = -1;
}

static void
stop_dispatcher(void)
{
	MemoryContextDelete(context);
	known_jobs = NULL;
}

/* ---------- cases ---------- */

static void
check_quotas(void)
{
	JobRef		ref = {.type_id = 1};

	start_dispatcher();
	tables_locked = true;
	CHECK(!tenant_limits_refresh() && tenant_limits_are_suspect(), "a locked table is read later");
	tables_locked = false;
	quotas[1] = 2;
	CHECK(tenant_limits_refresh() && !tenant_limits_are_suspect(), "then it is");
	tenant_limits_suspect();
	CHECK(!tenant_limits_refresh(), "quotas that are the same change nothing");
	ref.tenant_limit = tenant_callbacks.limit_of(slot_of(0, 2));
	CHECK(ref.tenant_limit != 0, "a tenant without a quota has that of the one above");
	CHECK(tenant_callbacks.limit_of(slot_of(0, 0)) == 0 &&
		  tenant_callbacks.limit_of(slot_of(0, -1)) == 0, "not that of one below, a job without tenant none");
	types[1].workflow = true;
	CHECK(tenant_callbacks.limit_of(slot_of(1, 2)) == 0, "a run does not count, its tasks do");
	types[1].workflow = false;
	quotas[1] = 0;
	read_quotas_again();
	CHECK(!tenant_limit_has_room(&ref, TOOLS, true), "max_running 0 means none");
	stop_dispatcher();
}

/* One job in a hundred is of a tenant that runs one at a time. */
static void
check_cost(void)
{
	bool		ok = true;
	int			jobs = 0;

	start_dispatcher();
	quotas[0] = 1;
	quotas[4] = 0;
	read_quotas_again();
	for (int i = 0; i < 5000; i++)
		add_row(1, 0, i % 100 == 0 ? 0 : 4, clock_now - 10000 + i);
	ok = dispatch();
	while (ok && jobs < 50)
	{
		for (int i = 0; i < nrows; i++)
		{
			if (rows[i].executor < 0)
				continue;
			end_row(i);
			jobs++;
			break;
		}
		ok = dispatch();
	}
	CHECK(ok && nrows == 4950, "jobs of one tenant among those of another run one after the other");
	CHECK(entries <= 5000 + 50, "and each index entry between them is read once");
	stop_dispatcher();
}

/* A job of a tenant below, which is full, is in front of one that could start. */
static void
check_nested(void)
{
	bool		ok = true;
	int			order[] = {0, 0, 1, 1, 0};	/* tenants */

	start_dispatcher();
	quotas[0] = 2;
	quotas[1] = 1;
	read_quotas_again();
	for (int i = 0; i < 5; i++)
		add_row(1, 0, order[i], clock_now - 5 + i);
	ok = dispatch() && rows[0].executor >= 0 && rows[1].executor >= 0;
	end_row(1);
	ok &= dispatch();
	end_row(0);
	CHECK(ok && dispatch() && none_could_start(), "a job passed over twice leaves its room to the next one");
	stop_dispatcher();
}

static void
check_steps(int steps)
{
	bool		ok = true;
	TimestampTz position = clock_now - INT64CONST(1000000);

	start_dispatcher();
	for (int i = 0; ok && i < steps; i++)
	{
		int			what = below(100);

		if (what < 45 && nrows < 60)
			add_row(below(NTYPES), below(2), below(NTENANTS + 1) - 1, below(8) == 0 ? position - below(50) : ++position);
		else if (what < 97 && nrows > 0)
			end_row(below(nrows));
		else
		{
			in_short_runs = below(2) == 0;
			for (int t = 0; t < NTENANTS; t++)
				quotas[t] = below(2) == 0 ? -1 : below(5);
			read_quotas_again();
		}
		ok = dispatch() && none_could_start();
	}
	CHECK(ok, "no job starts beyond a limit, and none waits that could start");
	stop_dispatcher();
}

int
main(int argc, char **argv)
{
	int			steps = random_start(argc, argv, 20000);

	check_quotas();
	check_cost();
	check_nested();
	check_steps(steps);
	return done();
}
