/*
 * beyond_horizon.c
 *	  Whether dead rows may be removed beyond the server's own horizon, with
 *	  regard to standbys.
 *
 * The property: no session on any server gets an answer that silently lacks a
 * row; SQLSTATE 40001 is allowed.  snapshot_horizon.c proves it for sessions
 * of this database on this server.  A standby's sessions are not in its lists.
 * They may have a snapshot for which a removed row still is alive, and may
 * read the queue after the removal is replayed.
 *
 * The rule that holds everywhere.  A removal's WAL record names its newest
 * deleter D, as VACUUM's records do.  Before replay applies it, each session
 * of this database with a snapshot xmin of D or older is cancelled (40001),
 * after max_standby_*_delay.  A snapshot that sees D as running has such an
 * xmin; a snapshot taken later sees D as ended, because D's commit precedes
 * the record.  So no snapshot that needs the row survives its removal.  The
 * server's core does this: it holds on standbys without jobq, fed by
 * streaming, archive or copied files, cascading, on recovery to a point in
 * time, and for exported snapshots.  A promotion leaves the session its
 * snapshot, and the rows that replay has not removed; from then on the
 * snapshot is in the lists of snapshot_horizon.c.
 *
 * The cost.  A transaction that holds back the server's horizon, for instance
 * a prepared one, is also in each snapshot of a standby.  All of these have an
 * old xmin, so a removal beyond the horizon cancels sessions that read other
 * tables, too.  Hence the default, auto, goes beyond the horizon only where
 * the server knows of no standby: no walsender but those of a database
 * (logical decoding), no physical replication slot, no archive.  Else it
 * removes the rows that VACUUM may remove; feedback and slots are part of that
 * horizon.  The record's D is there for a standby that the server does not
 * know (disconnected without a slot, fed from copied files).  The result may
 * be outdated at once: D makes it safe.
 *
 * on: the administrator declares that each standby preloads jobq or answers no
 * queries.  Removals beyond the horizon name no deleter; a fence
 * (standby_fence.c) raises 40001 for readers of the queue, and affects no
 * others.
 *
 * The rewrite (rewrite.c) removes by the server's horizon, and logs a conflict
 * of its own.
 */
#include "jobq.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "replication/slot.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/spin.h"

#include "maintenance/beyond_horizon.h"
#include "maintenance/standby_fence.h"

/* True if a standby may reconnect by a physical slot, which keeps its WAL. */
static bool
has_physical_slot(void)
{
	bool		found = false;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots && !found; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		found = slot->in_use && !SlotIsLogical(slot);
	}
	LWLockRelease(ReplicationSlotControlLock);
	return found;
}

/* True if a walsender is connected to no database, as physical ones are. */
static bool
has_physical_walsender(void)
{
	for (int i = 0; i < max_wal_senders; i++)
	{
		WalSnd	   *walsender = &WalSndCtl->walsnds[i];
		PGPROC	   *proc;
		pid_t		pid;

		SpinLockAcquire(&walsender->mutex);
		pid = walsender->pid;
		SpinLockRelease(&walsender->mutex);
		if (pid == 0)
			continue;
		proc = BackendPidGetProc(pid);
		if (proc == NULL || !OidIsValid(proc->databaseId))
			return true;
	}
	return false;
}

/* True if the server knows of a standby. */
static bool
standby_shows(void)
{
	return XLogStandbyInfoActive() &&
		(XLogArchivingActive() || has_physical_slot() || has_physical_walsender());
}

Beyond
beyond_horizon(void)
{
	if (jobq_compact_beyond_horizon == BEYOND_OFF)
		return BEYOND_NOT;
	if (jobq_compact_beyond_horizon == BEYOND_ON && fence_exists())
		return BEYOND_FENCED;
	return standby_shows() ? BEYOND_NOT : BEYOND_AS_CONFLICT;
}

bool
server_horizon_passed(Relation rel, TransactionId xid)
{
	return TransactionIdIsNormal(xid) &&
		TransactionIdPrecedesOrEquals(xid, GetOldestNonRemovableTransactionId(rel));
}
