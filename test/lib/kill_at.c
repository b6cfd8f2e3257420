/*
 * kill_at.c
 *	  Preloaded into a server: the n-th commit of a kind of background workers
 *	  kills a process, after it is visible and before its other callbacks.
 *
 * All processes share the file kill_at of the data directory, which the test
 * makes before the start and writes: the kind, the commits that are left, the
 * process; 0: the one that commits.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"

PG_MODULE_MAGIC;

typedef struct Point
{
	char		kind[32];		/* bgw_type */
	pg_atomic_uint32 left;		/* 0: no more */
	int32		pid;
} Point;

extern PGDLLEXPORT void _PG_init(void);

static Point *
shared_point(void)
{
	static Point *point = NULL;
	int			file;

	if (point != NULL)
		return point;
	file = open("kill_at", O_RDWR);
	if (file < 0)
		return NULL;
	point = mmap(NULL, sizeof(Point), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (point == MAP_FAILED)
		point = NULL;
	return point;
}

static void
count_commit(XactEvent event, void *arg)
{
	Point	   *point;
	uint32		left;

	if (event != XACT_EVENT_COMMIT || MyBgworkerEntry == NULL || !TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	point = shared_point();
	if (point == NULL || strcmp(MyBgworkerEntry->bgw_type, point->kind) != 0)
		return;
	left = pg_atomic_read_u32(&point->left);
	while (left > 0 && !pg_atomic_compare_exchange_u32(&point->left, &left, left - 1))
		;
	if (left == 1)
		kill(point->pid == 0 ? MyProcPid : point->pid, SIGKILL);
}

/* The last callback that is registered is the first one called. */
void
_PG_init(void)
{
	RegisterXactCallback(count_commit, NULL);
}
