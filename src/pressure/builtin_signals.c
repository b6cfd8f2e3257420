/*
 * builtin_signals.c
 *	  The built-in signals that the dispatcher sets itself, at each sweep, when a
 *	  pressure rule uses them.
 *
 * load: the load average of the last minute per processor is above
 * jobq.load_threshold; it is over when below 80 % of that.
 *
 * replication_lag: a standby has not applied the WAL that this server wrote
 * jobq.lag_threshold ago.  The dispatcher keeps the server's past positions,
 * one each sixteenth of the threshold, and compares them with the positions
 * that walsenders report as applied.  Unlike the times of pg_stat_replication,
 * this lag grows when a standby stands still.
 */
#include "jobq.h"

#include <stdlib.h>
#include <unistd.h>

#include "access/xlog.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "utils/timestamp.h"

#include "pressure/builtin_signals.h"
#include "pressure/pressure_rules.h"
#include "pressure/pressure_signals.h"

#define CLEAR_SHARE		0.8
#define SAMPLES			16

typedef struct Sample
{
	MonoTime	at;
	XLogRecPtr	written;
} Sample;

static Sample samples[SAMPLES + 1];	/* a ring */
static int	newest = 0;
static int	nsamples = 0;

static void
watch_load(JobqDb *db)
{
	double		load;
	long		processors = sysconf(_SC_NPROCESSORS_ONLN);

	if (getloadavg(&load, 1) != 1)
		return;
	load /= Max(processors, 1);
	if (load > jobq_load_threshold)
		signal_set_builtin(db, SIGNAL_LOAD, true);
	else if (load < jobq_load_threshold * CLEAR_SHARE)
		signal_set_builtin(db, SIGNAL_LOAD, false);
}

/* Returns the position at that time; Invalid: no sample is that old. */
static XLogRecPtr
written_before(MonoTime when)
{
	for (int i = 0; i < nsamples; i++)
	{
		const Sample *s = &samples[(newest + lengthof(samples) - i) % lengthof(samples)];

		if (s->at <= when)
			return s->written;
	}
	return InvalidXLogRecPtr;
}

static void
take_sample(MonoTime now, int64 every)
{
	if (nsamples > 0 && now - samples[newest].at < every)
		return;
	newest = (newest + 1) % lengthof(samples);
	samples[newest].at = now;
	samples[newest].written = GetFlushRecPtr(NULL);
	nsamples = Min(nsamples + 1, (int) lengthof(samples));
}

/*
 * True if a connected standby has not applied everything up to that position.
 */
static bool
one_is_behind(XLogRecPtr written)
{
	bool		behind = false;

	for (int i = 0; i < max_wal_senders && !behind; i++)
	{
		WalSnd	   *sender = &WalSndCtl->walsnds[i];

		SpinLockAcquire(&sender->mutex);
		behind = sender->pid != 0 && sender->state != WALSNDSTATE_BACKUP &&
			!XLogRecPtrIsInvalid(sender->apply) && sender->apply < written;
		SpinLockRelease(&sender->mutex);
	}
	return behind;
}

static void
watch_lag(JobqDb *db, MonoTime now)
{
	int64		threshold = (int64) jobq_lag_threshold * 1000;

	take_sample(now, threshold / SAMPLES);
	signal_set_builtin(db, SIGNAL_REPLICATION_LAG, one_is_behind(written_before(now - threshold)));
}

void
watch_machine(JobqDb *db, MonoTime now)
{
	if (pressure_uses(SIGNAL_LOAD))
		watch_load(db);
	else
		signal_set_builtin(db, SIGNAL_LOAD, false);
	if (pressure_uses(SIGNAL_REPLICATION_LAG))
		watch_lag(db, now);
	else
	{
		nsamples = 0;
		signal_set_builtin(db, SIGNAL_REPLICATION_LAG, false);
	}
}
