/*
 * dispatcher_request.c
 *	  Requests of a transaction, sent after its commit: to this database's
 *	  dispatcher, to start (the install script's last call) or to read its
 *	  settings again (jobq.reload()); to the launcher, to look at the databases
 *	  again (ALTER DATABASE).
 *
 * The callback can't fail and may run more often than needed.  A savepoint's
 * rollback is not followed: after a needless request the dispatcher finds
 * nothing new.  PREPARE drops the request; the first jobq call after COMMIT
 * PREPARED finds no dispatcher and requests one.
 */
#include "jobq.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"

#include "shared/dispatcher_request.h"
#include "shared/shmem.h"
#include "shared/worker_need.h"

static bool want = false;
static bool reload = false;
static bool databases_changed = false;

PG_FUNCTION_INFO_V1(jobq_installed);
PG_FUNCTION_INFO_V1(jobq_reload);

static void
request_dispatcher(void)
{
	JobqDb	   *db = make_db(MyDatabaseId);

	if (db == NULL)
		return;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	db->lifecycle.wanted = true;
	LWLockRelease(JobqShmem->lock);
	wake_launcher();
}

static void
request_reload(void)
{
	JobqDb	   *db = find_db(MyDatabaseId);

	if (db == NULL)
		return;
	SpinLockAcquire(&db->mutex);
	db->requests.reload = true;
	SpinLockRelease(&db->mutex);
	wake_dispatcher(db);
	want_dispatcher(db);
}

static void
request_xact_callback(XactEvent event, void *arg)
{
	if (!want && !reload && !databases_changed)
		return;
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			if (want)
				request_dispatcher();
			if (reload)
				request_reload();
			if (databases_changed)
			{
				JobqShmem->databases_changed = true;
				wake_launcher();
			}
			want = reload = databases_changed = false;
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			want = reload = databases_changed = false;
			break;
		default:
			break;
	}
}

static void
register_callback(void)
{
	static bool registered = false;

	if (!registered)
		RegisterXactCallback(request_xact_callback, NULL);
	registered = true;
}

void
request_database_scan(void)
{
	if (JobqShmem)
	{
		register_callback();
		databases_changed = true;
	}
}

/*
 * Returns the line of postgresql.conf that adds jobq to the libraries that are
 * loaded already.
 */
static const char *
preload_line(void)
{
	const char *loaded = shared_preload_libraries_string ? shared_preload_libraries_string : "";
	StringInfoData line;

	initStringInfo(&line);
	appendStringInfoString(&line, "shared_preload_libraries = '");
	for (const char *p = loaded; *p; p++)
	{
		appendStringInfoChar(&line, *p);
		if (*p == '\'' || *p == '\\')	/* quoted as in the file */
			appendStringInfoChar(&line, *p);
	}
	appendStringInfo(&line, "%sjobq'", loaded[0] == '\0' ? "" : ",");
	return line.data;
}

/* Warns the client of a configuration that keeps jobs from running. */
static void
warn_of_configuration(void)
{
	if (JobqShmem == NULL)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq is not preloaded: jobs are stored, and nothing runs them"),
				 errhint("Put this line into postgresql.conf and restart the server: %s", preload_line())));
	if (IsUnderPostmaster && database_is_admitted(get_database_name(MyDatabaseId)))
		warn_of_worker_need(MyDatabaseId);
}

/* jobq_internal._installed(): called at the end of the install script. */
Datum
jobq_installed(PG_FUNCTION_ARGS)
{
	warn_of_configuration();
	if (JobqShmem)
	{
		register_callback();
		want = true;
	}
	PG_RETURN_VOID();
}

/*
 * jobq.reload(): at commit, so that an ALTER DATABASE of the same transaction
 * counts.
 */
Datum
jobq_reload(PG_FUNCTION_ARGS)
{
	if (JobqShmem)
	{
		register_callback();
		reload = true;
	}
	PG_RETURN_VOID();
}
