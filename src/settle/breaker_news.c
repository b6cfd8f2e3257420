/*
 * breaker_news.c
 *	  Events and log lines of breakers that have opened or closed.
 *
 * The process that ran the attempt writes them, once that attempt's settlement
 * is committed, in a transaction of its own.  For an attempt of a client it is
 * maintenance.  When that fails, only the log has a line.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/interval.h"
#include "base/json_build.h"
#include "settle/breaker_news.h"
#include "shared/breaker.h"
#include "tables/queue_table.h"

static List *pieces = NIL;	/* of BreakerChange */

/* ---------- how attempts end ---------- */

/*
 * True if jobq broke off the attempt: such an end proves nothing about the
 * type.  A client or a tool may give the same code.
 */
static bool
is_fault_of_system(const Outcome *o)
{
	return !o->code_given && o->code != NULL && (strcmp(o->code, "server_crash") == 0 || strcmp(o->code, "helper_lost") == 0);
}

void
breaker_fill_note(BreakerNote *note, const JobType *type, const Outcome *o)
{
	note->type_id = type->id;
	note->limit = type->breaker_failures;
	note->pause_us = type->breaker_pause_us;
	note->resumed_at = type->resumed_at;
	note->succeeded = o->kind == OUTCOME_COMPLETED;
	note->failed = o->kind == OUTCOME_FAILED && !is_fault_of_system(o);
}

/* Keeps a change of a breaker for breaker_tell(); allocates. */
static void
keep_news(const BreakerChange *change)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	BreakerChange *piece = palloc(sizeof(BreakerChange));

	*piece = *change;
	pieces = lappend(pieces, piece);
	MemoryContextSwitchTo(old);
}

void
breaker_note(const BreakerNote *note, const pg_uuid_t *id)
{
	BreakerChange change = {note->type_id, *id, .pause_us = note->pause_us};

	if (note->type_id == 0)
		return;
	change.news = breaker_apply_note(note, id, &change.failures);
	change.at = GetCurrentTimestamp();
	if (change.news != BREAKER_NO_NEWS)
		keep_news(&change);
}

/* ---------- the news ---------- */

static char *
message_of(const BreakerChange *piece, const JobType *type)
{
	if (piece->news == BREAKER_HAS_CLOSED)
		return psprintf("the breaker of job type \"%s\" is closed: its jobs start again", type->name);
	return psprintf("the breaker of job type \"%s\" is open for %s: %d attempts in a row have failed",
					type->name, span_text(piece->pause_us), piece->failures);
}

static Jsonb *
data_of(const BreakerChange *piece)
{
	JsonBuild	b;

	if (piece->news == BREAKER_HAS_CLOSED)
		return NULL;
	json_begin_object(&b);
	json_add_number(&b, "failures", piece->failures);
	json_add_time(&b, "until", piece->at + piece->pause_us);
	return json_end_object(&b);
}

static void
write_piece(EventLog *log, const BreakerChange *piece)
{
	JobType    *type = job_type_by_id(piece->type_id);
	bool		opened = piece->news == BREAKER_OPENED;
	Datum		values[Q_NATTS] = {0};
	bool		nulls[Q_NATTS];
	Event		event = {.ts = piece->at, .type = opened ? "paused" : "resumed", .source = "dispatcher",
	.level = opened ? "error" : "info"};

	if (type == NULL)
		return;
	event.message = message_of(piece, type);
	event.data = data_of(piece);
	ereport(LOG,
			(errcode(opened ? ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE : ERRCODE_SUCCESSFUL_COMPLETION),
			 errmsg("jobq: %s", event.message)));
	memset(nulls, true, sizeof(nulls));
	values[Q_id - 1] = UUIDPGetDatum(&piece->id);
	nulls[Q_id - 1] = false;
	if (EVENTS_WANTED(type, EVENTS_FAILURES))
		event_add(log, values, nulls, type->name, &event);
}

static void
write_pieces(void)
{
	EventLog	log;
	ListCell   *lc;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());	/* what TOAST may need */
	events_begin(&log);
	foreach(lc, pieces)
		write_piece(&log, lfirst(lc));
	events_end(&log);
	PopActiveSnapshot();
	CommitTransactionCommand();
}

void
breaker_tell(void)
{
	MemoryContext context = CurrentMemoryContext;

	if (pieces == NIL)
		return;
	PG_TRY();
	{
		write_pieces();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		EmitErrorReport();
		AbortOutOfAnyTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	list_free_deep(pieces);
	pieces = NIL;
}

void
breaker_tell_for_clients(JobqDb *db)
{
	BreakerChange changes[JOBQ_BREAKER_CHANGES];
	int			n = breakers_have_changes(db) ? breakers_take_changes(db, changes) : 0;

	for (int i = 0; i < n; i++)
		keep_news(&changes[i]);
	breaker_tell();
}
