/*
 * lease_log.c
 *	  The bound of an attempt's events: see lease_log.h.
 *
 * jobq.log_event with a token writes its event at once, so no process has the
 * list of an attempt's events.  Each session counts those of the attempts that
 * it has written about; the first count of an attempt comes from jobq.events,
 * by its index on job_id.  Sessions that share an attempt count what the others
 * had committed until then, so together they may go beyond the bound by what
 * they write at the same time.
 *
 * Events of transactions that were rolled back count, too, in their session.
 *
 * Memory holds a few attempts, by their tokens: an attempt that another one has
 * displaced is counted again.
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "pull/lease_log.h"
#include "tables/event_log.h"

#define ATTEMPTS	64			/* in memory */

typedef struct AttemptLog
{
	pg_uuid_t	token;			/* of the claim; zeroes: none */
	int			count;
} AttemptLog;

static AttemptLog attempts[ATTEMPTS];

/* Returns the number of the attempt's events in jobq.events, up to one more than the bound. */
static int
count_events(Job *job)
{
	static SPIPlanPtr plan = NULL;
	Oid			types[3] = {UUIDOID, TIMESTAMPTZOID, INT4OID};
	Datum		args[3] = {UUIDPGetDatum(JOB_ID(job)),
		JOB_NULL(job, Q_started_at) ? TimestampTzGetDatum(DT_NOBEGIN) : JOB_ATT(job, Q_started_at), JOB_ATT(job, Q_attempts)};
	bool		isnull;
	int			n;

	SPI_connect();
	if (plan == NULL)
	{
		plan = SPI_prepare(psprintf("SELECT pg_catalog.count(*) FROM (SELECT FROM jobq.events"
									" WHERE job_id OPERATOR(pg_catalog.=) $1 AND ts OPERATOR(pg_catalog.>=) $2"
									" AND attempt OPERATOR(pg_catalog.=) $3 LIMIT %d) e", ATTEMPT_EVENTS + 1), 3, types);
		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not prepare a query of jobq.events");
	}
	if (SPI_execute_plan(plan, args, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read jobq.events");
	n = (int) DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	SPI_finish();
	return n;
}

int
lease_log_count(Job *job)
{
	pg_uuid_t  *token = DatumGetUUIDP(JOB_ATT(job, Q_lease_token));
	AttemptLog *log = &attempts[hash_bytes(token->data, UUID_LEN) % ATTEMPTS];

	if (memcmp(&log->token, token, UUID_LEN) != 0)
	{
		int			n = count_events(job);	/* may fail */

		*log = (AttemptLog) {.token = *token, .count = n};
	}
	return log->count > ATTEMPT_EVENTS ? log->count : log->count++;
}
