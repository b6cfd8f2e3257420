/*
 * ledger.c
 *	  The tables that a settling transaction writes, and rows that go into history together.
 *
 * Tables are opened when the first row needs them and closed before commit.  A batch of jobs that are done
 * is moved at its end, by one insert of many rows: one WAL record and one look for room per page.
 * Until then such a job is still in the queue, locked by us, and looks to everybody, also to the handlers
 * that run after it in the batch, as it looks to another transaction: running.  A job with a unique key is
 * moved at once: a later handler that enqueues the key must find it free.
 */
#include "jobq.h"

#include "access/table.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "job_types.h"
#include "ledger.h"

static void
move_now(Ledger *ledger, Job *job, Datum *values, bool *nulls)
{
	table_insert_row(&ledger->history, values, nulls);
	table_delete_row(&ledger->queue, &job->tid);
}

/* history's partition is open. */
void
ledger_move_to_history(Ledger *ledger, Job *job, Datum *values, bool *nulls)
{
	if (!ledger->together || !JOB_NULL(job, Q_unique_key))
	{
		move_now(ledger, job, values, nulls);
		return;
	}
	if (ledger->nmoves == JOBQ_CELLS)
		ledger_write(ledger);
	ledger->moved_from[ledger->nmoves] = job->tid;
	ledger->moved_to[ledger->nmoves++] = heap_form_tuple(RelationGetDescr(ledger->history.rel), values, nulls);
}

/* What was to be written together. */
void
ledger_write(Ledger *ledger)
{
	int			n = ledger->nmoves;

	ledger->nmoves = 0;
	if (n == 0)
		return;
	table_insert_tuples(&ledger->history, ledger->moved_to, n);
	for (int i = 0; i < n; i++)
		table_delete_row(&ledger->queue, &ledger->moved_from[i]);
}

void
ledger_open(Ledger *ledger)
{
	memset(ledger, 0, sizeof(Ledger));
	table_open_for_write(&ledger->queue, jobq_relid("queue"));
	ledger->queue_open = true;
}

void
ledger_bury(Ledger *ledger, Datum *values, bool *nulls)
{
	if (!ledger->dead_open)
		table_open_for_write(&ledger->dead, jobq_relid("dead_letters"));
	ledger->dead_open = true;
	table_insert_row(&ledger->dead, values, nulls);
	ledger->nburied++;
}

/* src/sql/25_retention.sql: how the number of dead letters is known. */
static void
count_dead_letters(int n)
{
	Datum		values[1] = {Int64GetDatum(n)};
	bool		nulls[1] = {false};
	Table		count;

	table_open_for_write(&count, jobq_relid("dead_letter_count"));
	table_insert_row(&count, values, nulls);
	table_close_after_write(&count);
}

void
ledger_close(Ledger *ledger)
{
	ledger_write(ledger);
	if (ledger->events_open)
		table_close_after_write(&ledger->events);
	if (ledger->nburied > 0)
		count_dead_letters(ledger->nburied);
	if (ledger->dead_open)
		table_close_after_write(&ledger->dead);
	if (ledger->history_open)
		table_close_after_write(&ledger->history);
	if (ledger->queue_open)
		table_close_after_write(&ledger->queue);
	memset(ledger, 0, sizeof(Ledger));
}

/*
 * The partition of a table partitioned by one timestamptz range that holds ts, and its bounds; InvalidOid:
 * none.
 */
static Oid
partition_for(const char *parent, TimestampTz ts, TimestampTz *from, TimestampTz *to)
{
	Relation	rel = table_open(jobq_relid(parent), AccessShareLock);
	PartitionDesc desc = RelationGetPartitionDesc(rel, true);
	PartitionKey key = RelationGetPartitionKey(rel);
	PartitionBoundInfo bounds = desc->boundinfo;
	Oid			result = InvalidOid;

	if (desc->nparts > 0)
	{
		Datum		value = TimestampTzGetDatum(ts);
		bool		equal;
		int			bound = partition_range_datum_bsearch(key->partsupfunc, key->partcollation,
														  bounds, 1, &value, &equal);
		int			part = bounds->indexes[bound + 1];

		if (part >= 0)
		{
			result = desc->oids[part];
			*from = *to = ts;	/* open-ended bounds: look again for any other key */
			if (bounds->kind[bound][0] == PARTITION_RANGE_DATUM_VALUE &&
				bounds->kind[bound + 1][0] == PARTITION_RANGE_DATUM_VALUE)
			{
				*from = DatumGetTimestampTz(bounds->datums[bound][0]);
				*to = DatumGetTimestampTz(bounds->datums[bound + 1][0]);
			}
		}
	}
	table_close(rel, AccessShareLock);
	return result;
}

/* Our lock keeps the open partition what it is until the transaction ends. */
static bool
open_partition(Table *table, bool *open, const char *parent, TimestampTz ts,
			   TimestampTz *from, TimestampTz *to)
{
	Oid			oid;

	if (*open && ts >= *from && ts < *to)
		return true;
	oid = partition_for(parent, ts, from, to);
	if (!OidIsValid(oid))
		return false;
	if (*open)
		table_close_after_write(table);
	table_open_for_write(table, oid);
	*open = true;
	return true;
}

bool
ledger_open_history(Ledger *ledger, TimestampTz expires_at)
{
	if (ledger->nmoves > 0 && !(expires_at >= ledger->history_from && expires_at < ledger->history_to))
		ledger_write(ledger);
	return open_partition(&ledger->history, &ledger->history_open, "history", expires_at,
						  &ledger->history_from, &ledger->history_to);
}

bool
ledger_open_events(Ledger *ledger, TimestampTz ts)
{
	return open_partition(&ledger->events, &ledger->events_open, "events", ts,
						  &ledger->events_from, &ledger->events_to);
}
