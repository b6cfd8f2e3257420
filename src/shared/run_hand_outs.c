/*
 * run_hand_outs.c
 *	  Numbers of hand-outs of runs: see run_hand_outs.h.
 *
 * An open number is at its remainder in RunStarts.open.  Numbers whose places
 * are in use are skipped; at most half of the places are.
 */
#include "jobq.h"

#include "shared/claims.h"
#include "shared/publish_jobs.h"
#include "shared/run_hand_outs.h"

#define MARK		(UINT64CONST(1) << 63)
#define MAX_OPEN	(JOBQ_RUN_HAND_OUTS / 2)

static uint64 *
place_of(RunStarts *all, uint64 number)
{
	return &all->open[number % JOBQ_RUN_HAND_OUTS];
}

static void
end_hand_out(RunStarts *all, uint64 *place)
{
	*place = 0;
	all->nopen--;
	all->taken = true;
}

/* ---------- the dispatcher ---------- */

uint64
run_hand_out(JobqDb *db, const RunStart *start)
{
	RunStarts  *all = &db->run_starts;
	uint64		number = 0;

	SpinLockAcquire(&db->mutex);
	db->schedule_news.wanted = true;
	if (all->n < JOBQ_RUN_STARTS && all->nopen < MAX_OPEN)
	{
		do
			number = ++all->last;
		while (*place_of(all, number) != 0);
		*place_of(all, number) = number;
		all->nopen++;
		all->runs[all->n] = *start;
		all->runs[all->n++].number = number;
	}
	SpinLockRelease(&db->mutex);
	return number;
}

bool
run_take_back(JobqDb *db, uint64 number)
{
	uint64	   *place = place_of(&db->run_starts, number);
	bool		marked;

	SpinLockAcquire(&db->mutex);
	marked = *place == (number | MARK);
	if (*place == number)
		end_hand_out(&db->run_starts, place);
	SpinLockRelease(&db->mutex);
	return !marked;
}

/* Ends the open hand-outs that are marked, or the others. */
static void
end_all(JobqDb *db, bool marked)
{
	RunStarts  *all = &db->run_starts;

	for (int i = 0; i < JOBQ_RUN_HAND_OUTS && all->nopen > 0; i++)
	{
		if (all->open[i] != 0 && ((all->open[i] & MARK) != 0) == marked)
			end_hand_out(all, &all->open[i]);
	}
}

void
run_take_back_all(JobqDb *db)
{
	SpinLockAcquire(&db->mutex);
	db->run_starts.n = 0;
	end_all(db, false);
	SpinLockRelease(&db->mutex);
}

/* ---------- the conductor ---------- */

int
run_mark(JobqDb *db, RunStart *starts, int n)
{
	int			kept = 0;

	SpinLockAcquire(&db->mutex);
	for (int i = 0; i < n; i++)
	{
		uint64	   *place = place_of(&db->run_starts, starts[i].number);

		if (*place != starts[i].number)
			continue;
		*place |= MARK;
		starts[kept++] = starts[i];
	}
	SpinLockRelease(&db->mutex);
	return kept;
}

void
run_unmark(JobqDb *db, const RunStart *starts, int n)
{
	SpinLockAcquire(&db->mutex);
	for (int i = 0; i < n; i++)
		*place_of(&db->run_starts, starts[i].number) = starts[i].number;
	SpinLockRelease(&db->mutex);
}

void
run_starts_over(JobqDb *db, const RunStart *starts, int n)
{
	if (n == 0)
		return;
	SpinLockAcquire(&db->mutex);
	for (int i = 0; i < n; i++)
	{
		end_hand_out(&db->run_starts, place_of(&db->run_starts, starts[i].number));
		publish_entry(db, lease_entry(&starts[i].id, LEASE_LOOK));
	}
	SpinLockRelease(&db->mutex);
	wake_dispatcher(db);
}

void
run_drop_marks(JobqDb *db)
{
	SpinLockAcquire(&db->mutex);
	end_all(db, true);
	SpinLockRelease(&db->mutex);
	wake_dispatcher(db);
}
