/*
 * crash_record.c
 *	  Crash accounting: see crash_record.h.
 *
 * A worker writes its job before it calls the handler and clears it
 * afterwards.  When a process crashes, the postmaster stops the others by
 * SIGQUIT, and each of jobq's workers notes that before it exits.  A record
 * without that note belongs to the process that died by itself.  If every
 * record has it, another process died, for instance a parallel worker of a
 * handler.  Then a job that was alone in flight in three such crashes in a row
 * is guilty as well.
 */
#include "jobq.h"

#include <signal.h>
#include <sys/mman.h>

#include "libpq/pqsignal.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"

#include "shared/crash_record.h"

#define CRASHES_ALONE 3

typedef struct Record
{
	Oid			dboid;			/* InvalidOid: nothing runs */
	bool		stopped;		/* by the postmaster */
	bool		guilty;			/* crashed[] only */
	pg_uuid_t	id;
} Record;

typedef struct Inflight
{
	Record		now[JOBQ_MAX_SLOTS];
	Record		crashed[JOBQ_MAX_SLOTS];	/* left by the last crash; the
											 * dispatcher takes them */
	pg_uuid_t	last_alone;
	int			last_alone_crashes;
} Inflight;

static Inflight *inflight = NULL;
static Record *mine = NULL;
static Oid	mine_dboid;

void
crash_record_create(void)
{
	void	   *map = mmap(NULL, sizeof(Inflight), PROT_READ | PROT_WRITE,
						   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not map %zu bytes for jobq's in-flight record: %m", sizeof(Inflight))));
	inflight = map;
}

/* Notes the signal, then does the work of the core handler. */
static void
stopped_by_postmaster(SIGNAL_ARGS)
{
	if (mine)
		mine->stopped = true;
	SignalHandlerForCrashExit(SIGNAL_ARGS_GIVEN);
}

/* Clears the record of a worker that exits normally. */
static void
inflight_on_exit(int code, Datum arg)
{
	crash_record_end();
}

void
crash_record_attach(int slotno, Oid dboid)
{
	if (inflight == NULL)
		return;
	mine = &inflight->now[slotno];
	mine_dboid = dboid;
	mine->dboid = InvalidOid;
	mine->stopped = false;
	pqsignal(SIGQUIT, stopped_by_postmaster);
	on_shmem_exit(inflight_on_exit, 0);
}

void
crash_record_begin(const pg_uuid_t *id)
{
	if (mine == NULL)
		return;
	mine->id = *id;
	pg_write_barrier();
	mine->dboid = mine_dboid;
}

void
crash_record_end(void)
{
	if (mine)
		mine->dboid = InvalidOid;
}

/* True if the job was alone in flight in CRASHES_ALONE crashes in a row. */
static bool
third_crash_alone(const pg_uuid_t *id)
{
	if (memcmp(&inflight->last_alone, id, sizeof(pg_uuid_t)) == 0)
		inflight->last_alone_crashes++;
	else
	{
		inflight->last_alone = *id;
		inflight->last_alone_crashes = 1;
	}
	if (inflight->last_alone_crashes < CRASHES_ALONE)
		return false;
	inflight->last_alone_crashes = 0;
	return true;
}

/*
 * A crash has left each record with a job in flight and an unclaimed slot.
 * Called before any worker can be started, so a new one cannot overwrite it.
 */
void
crash_record_after_restart(void)
{
	int			n = 0;

	if (inflight == NULL)
		return;
	for (int i = 0; i < JOBQ_MAX_SLOTS; i++)
		n += OidIsValid(inflight->now[i].dboid) && !JobqShmem->slots[i].in_use;
	for (int i = 0; i < JOBQ_MAX_SLOTS; i++)
	{
		Record	   *r = &inflight->now[i];

		if (!OidIsValid(r->dboid) || JobqShmem->slots[i].in_use)
			continue;
		inflight->crashed[i] = *r;
		inflight->crashed[i].guilty = !r->stopped || (n == 1 && third_crash_alone(&r->id));
		r->dboid = InvalidOid;
	}
}

int
crash_record_take_suspects(Oid dboid, Suspect *suspects, int max)
{
	int			n = 0;

	if (inflight == NULL)
		return 0;
	for (int i = 0; i < JOBQ_MAX_SLOTS && n < max; i++)
	{
		Record	   *r = &inflight->crashed[i];

		if (r->dboid != dboid)
			continue;
		suspects[n].id = r->id;
		suspects[n].guilty = r->guilty;
		n++;
		r->dboid = InvalidOid;
	}
	return n;
}
