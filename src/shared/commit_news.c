/*
 * commit_news.c
 *	  Notices of a transaction that are given after its commit.
 *
 * Texts are made beforehand and belong to the subtransaction that made them.
 * The callback at COMMIT writes them to the log, as PostgreSQL's own callbacks
 * may, but not to the client: its encoding may lack a character, and an error
 * after the commit is a PANIC.  It also sets bits in shared memory.  Only a
 * transaction that sets a bit which was clear wakes the dispatcher, so a burst
 * of commits wakes it once.  A prepared transaction gives no notices: COMMIT
 * PREPARED has no callback that knows of them.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"

#include "shared/commit_news.h"
#include "shared/shmem.h"

typedef struct LogLine
{
	SubTransactionId subid;
	int			elevel;
	char	   *message;
	char	   *detail;
} LogLine;

static MemoryContext news_context = NULL;	/* reset at the end of each
											 * transaction with notices */
static JobqDb *news_db = NULL;
static List *lines = NIL;
static uint32 news = 0;

static void
forget_news(void)
{
	lines = NIL;
	news = 0;
	MemoryContextReset(news_context);
}

/* Sets the bits, and wakes the dispatcher if one was clear. */
static void
tell_dispatcher(void)
{
	if (news_db == NULL || news_db->dboid != MyDatabaseId)
		return;
	if ((pg_atomic_fetch_or_u32(&news_db->news, news) & news) != news)
		wake_dispatcher(news_db);
}

/* Writes the lines to the server log only. */
static void
write_lines(void)
{
	CommandDest client = whereToSendOutput;
	ListCell   *lc;

	whereToSendOutput = DestNone;
	foreach(lc, lines)
	{
		LogLine    *line = lfirst(lc);

		ereport(line->elevel,
				(errmsg_internal("%s", line->message),
				 line->detail ? errdetail_internal("%s", line->detail) : 0,
				 errhidestmt(true), errhidecontext(true)));
	}
	whereToSendOutput = client;
}

static void
news_xact_callback(XactEvent event, void *arg)
{
	if (news == 0 && lines == NIL)
		return;
	if (event == XACT_EVENT_COMMIT)
	{
		write_lines();
		tell_dispatcher();
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		forget_news();
}

/*
 * Drops the lines of a subtransaction that is rolled back.  Its bits stay: a
 * needless notification finds nothing new.
 */
static void
news_subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	while (lines != NIL && ((LogLine *) llast(lines))->subid >= subid)
		lines = list_truncate(lines, list_length(lines) - 1);
}

static void
note(uint32 bit)
{
	if (news_context == NULL)
	{
		news_context = AllocSetContextCreate(TopMemoryContext, "jobq news", ALLOCSET_SMALL_SIZES);
		RegisterXactCallback(news_xact_callback, NULL);
		RegisterSubXactCallback(news_subxact_callback, NULL);
	}
	if (news == 0)
		news_db = my_db();
	news |= bit;
}

void
news_events(void)
{
	if (jobq_notify_events && (news & NEWS_EVENTS) == 0)
		note(NEWS_EVENTS);
}

void
news_alert(int elevel, const char *message, const char *detail)
{
	MemoryContext old;
	LogLine    *line;

	note(NEWS_ALERTS);
	if (elevel == 0)
		return;
	old = MemoryContextSwitchTo(news_context);
	line = palloc(sizeof(LogLine));
	line->subid = GetCurrentSubTransactionId();
	line->elevel = elevel;
	line->message = pstrdup(message);
	line->detail = detail ? pstrdup(detail) : NULL;
	lines = lappend(lines, line);
	MemoryContextSwitchTo(old);
}
