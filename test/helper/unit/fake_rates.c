/*
 * fake_rates.c
 *	  The server around rate windows: see fake_rates.h.
 */
#include "fake_rates.h"

#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

#include "base/conditional_lock.h"
#include "base/relations.h"
#include "base/subtransaction.h"
#include "shared/rate_pool.h"

#define SECOND		INT64CONST(1000000)

/* ---------- the server ---------- */

JobqShared *JobqShmem;
uint64		SPI_processed;
SPITupleTable *SPI_tuptable;

bool		tables_locked;
bool		read_fails;
TimestampTz past_starts[100];
int			npast;

static int	lwlocks_held;
static int	past_row;

bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	Assert(lock == JobqShmem->lock && mode == LW_EXCLUSIVE && lwlocks_held == 0);
	lwlocks_held++;
	return true;
}

void
LWLockRelease(LWLock *lock)
{
	Assert(lock == JobqShmem->lock && lwlocks_held == 1);
	lwlocks_held--;
}

Oid
jobq_relid(const char *name)
{
	return InvalidOid;
}

bool
lock_tree_if_free(Oid relid)
{
	return !tables_locked;
}

ErrorData *
try_subtransaction(void (*what) (void *arg), void *arg)
{
	static ErrorData error;

	if (read_fails)
		return &error;
	what(arg);
	return NULL;
}

void
ThrowErrorData(ErrorData *edata)
{
	Assert(edata->elevel == LOG);
}

void
FreeErrorData(ErrorData *edata)
{
}

int
NewGUCNestLevel(void)
{
	return 1;
}

void
AtEOXact_GUC(bool isCommit, int nestLevel)
{
}

int
set_config_option(const char *name, const char *value, GucContext context, GucSource source, GucAction action,
				  bool changeVal, int elevel, bool is_reload)
{
	return 1;
}

Snapshot
GetTransactionSnapshot(void)
{
	return NULL;
}

void
PushActiveSnapshot(Snapshot snapshot)
{
}

void
PopActiveSnapshot(void)
{
}

text *
cstring_to_text(const char *s)
{
	static text none;

	return &none;
}

int
SPI_connect(void)
{
	return SPI_OK_CONNECT;
}

int
SPI_finish(void)
{
	return SPI_OK_FINISH;
}

/* Returns the starts of the window of time that the arguments have. */
int
SPI_execute_with_args(const char *src, int nargs, Oid *argtypes, Datum *values, const char *nulls,
					  bool read_only, long tcount)
{
	static HeapTuple rows[lengthof(past_starts)];
	static SPITupleTable table = {.vals = rows};
	TimestampTz since = DatumGetTimestampTz(values[2]);
	TimestampTz until = DatumGetTimestampTz(values[3]);
	int			n = 0;

	for (int i = 0; i < npast; i++)
	{
		if (past_starts[i] >= since && past_starts[i] <= until)
			past_starts[n++] = past_starts[i];
	}
	npast = n;
	past_row = 0;
	SPI_processed = n;
	SPI_tuptable = &table;
	return SPI_OK_SELECT;
}

Datum
SPI_getbinval(HeapTuple tuple, TupleDesc tupdesc, int fnumber, bool *isnull)
{
	return TimestampTzGetDatum(past_starts[past_row++]);
}

/* ---------- shared memory ---------- */

Rate		rates[RATES];
char		rate_names[RATES][NAMEDATALEN];

void
start_server(void)
{
	static LWLock lock;
	RatePool   *pool = calloc(1, offsetof(RatePool, next) + (BLOCKS + 1) * sizeof(int32));

	JobqShmem = calloc(1, offsetof(JobqShared, dbs) + 2 * sizeof(JobqDb));
	JobqShmem->lock = &lock;
	JobqShmem->ndbs = 2;
	JobqShmem->started_at = clock_now - 1000 * SECOND;
	JobqShmem->rates = pool;
	pool->blocks = calloc(BLOCKS, sizeof(RateBlock));
	for (int32 i = BLOCKS; i > 0; i--)
	{
		pool->nblocks = i;
		pool->next[0] = i;		/* a chain of one */
		pool->next[i] = 0;
		rate_blocks_give(i);
	}
	pool->nblocks = BLOCKS;
	for (int i = 0; i < 2; i++)
		JobqShmem->dbs[i].dboid = JobqShmem->dbs[i].rates.dboid = 100 + i;
	memset(rates, 0, sizeof(rates));
	npast = 0;
	tables_locked = read_fails = false;
	rate_init(&JobqShmem->dbs[0]);
}

void
stop_server(void)
{
	free(JobqShmem->rates->blocks);
	free(JobqShmem->rates);
	free(JobqShmem);
}

void
load(int i, int limit, int64 window_us, int burst)
{
	snprintf(rate_names[i], NAMEDATALEN, "limit %d", i);
	rate_load(&rates[i], 0, rate_names[i], limit, window_us, burst);
}

int
blocks_of(const JobqDb *db)
{
	RatePool   *pool = JobqShmem->rates;
	int			n = 0;

	/* a window's first member is the number of the next one */
	for (int32 window = db->rates.first; window != 0; window = *(int32 *) &pool->blocks[window - 1])
	{
		for (int32 block = window; block != 0; block = pool->next[block])
			n++;
	}
	return n;
}

bool
no_block_is_lost(void)
{
	RatePool   *pool = JobqShmem->rates;
	int			nfree = 0;

	for (int32 block = pool->free; block != 0; block = pool->next[block])
		nfree++;
	return nfree == pool->nfree &&
		nfree + blocks_of(&JobqShmem->dbs[0]) + blocks_of(&JobqShmem->dbs[1]) == BLOCKS && lwlocks_held == 0;
}
