/*
 * ledger.c
 *	  The tables that a settling transaction writes, and rows that go into history together.
 *
 * Tables are opened when the first row needs them and closed before commit.
 * The finished jobs of a batch are moved at its end, by one insert of many
 * rows: one WAL record and one search for room per page.  Until then such a
 * job is still in the queue, locked by this process, and other sessions see it
 * as running.  A job with a
 * unique key is moved at once: a later handler that enqueues the key must find
 * it free. Events are gathered in the same way.
 */
#include "jobq.h"

#include "utils/rel.h"

#include "base/relations.h"
#include "settle/ledger.h"
#include "tables/table_shape.h"

static const ShapeColumn dead_letter_count_columns[] = {{"change", INT8OID, FILLED}};
const Shape dead_letter_count_shape = SHAPE("dead_letter_count", dead_letter_count_columns);

static void
move_now(Ledger *ledger, Job *job, Datum *values, bool *nulls)
{
	table_insert_row(&ledger->history.table, values, nulls);
	table_delete_row(&ledger->queue, &job->tid);
}

/* Writes the rows that were gathered. */
static void
ledger_write(Ledger *ledger)
{
	int			n = ledger->nmoves;

	ledger->nmoves = 0;
	if (n == 0)
		return;
	table_insert_tuples(&ledger->history.table, ledger->moved_to, n);
	for (int i = 0; i < n; i++)
		table_delete_row(&ledger->queue, &ledger->moved_from[i]);
}

void
ledger_open_partition(Ledger *ledger, Partition *p, const char *parent, TimestampTz ts)
{
	MemoryContext old = MemoryContextSwitchTo(ledger->context);

	partition_open(p, parent, ts);
	MemoryContextSwitchTo(old);
}

void
ledger_move_to_history(Ledger *ledger, Job *job, Datum *values, bool *nulls)
{
	TimestampTz expires_at = DatumGetTimestampTz(values[H_expires_at - 1]);

	if (ledger->nmoves > 0 && !partition_holds(&ledger->history, expires_at))
		ledger_write(ledger);
	ledger_open_partition(ledger, &ledger->history, "history", expires_at);
	if (!ledger->together || !JOB_NULL(job, Q_unique_key))
	{
		move_now(ledger, job, values, nulls);
		return;
	}
	if (ledger->nmoves == JOBQ_CELLS)
		ledger_write(ledger);
	ledger->moved_from[ledger->nmoves] = job->tid;
	ledger->moved_to[ledger->nmoves++] = table_form_row(&ledger->history.table, values, nulls);
}

void
ledger_open(Ledger *ledger)
{
	memset(ledger, 0, sizeof(Ledger));
	ledger->context = CurrentMemoryContext;
	events_begin(&ledger->events);
	table_open_for_write(&ledger->queue, jobq_relid("queue"));
	ledger->queue_open = true;
}

void
ledger_bury(Ledger *ledger, Datum *values, bool *nulls)
{
	if (!ledger->dead_open)
	{
		MemoryContext old = MemoryContextSwitchTo(ledger->context);

		table_open_for_write(&ledger->dead, jobq_relid("dead_letters"));
		ledger->dead_open = true;
		MemoryContextSwitchTo(old);
	}
	table_insert_row(&ledger->dead, values, nulls);
	ledger->nburied++;
}

/* Counts dead letters: see src/sql/25_retention.sql. */
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
	events_end(&ledger->events);
	partition_close(&ledger->alerts);
	partition_close(&ledger->artifacts);
	if (ledger->nburied > 0)
		count_dead_letters(ledger->nburied);
	if (ledger->dead_open)
		table_close_after_write(&ledger->dead);
	partition_close(&ledger->history);
	if (ledger->queue_open)
		table_close_after_write(&ledger->queue);
	memset(ledger, 0, sizeof(Ledger));
}
