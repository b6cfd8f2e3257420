/*
 * hook_references.c
 *	  The table jobq.hook_references.
 *
 * Rarely used, so it is read and written by SQL, as the owner of jobq's
 * tables.
 */
#include "jobq.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"

#include "base/act_as.h"
#include "base/relations.h"
#include "settle/hook_references.h"
#include "tables/table_shape.h"

/* read and written by SQL only; its shape is checked as that of the others */
static const ShapeColumn hook_references_columns[] = {{"hook_job", UUIDOID, FILLED}, {"job_id", UUIDOID, FILLED}};
const Shape hook_references_shape = SHAPE("hook_references", hook_references_columns);

/*
 * Executes a statement on up to two ids; returns the number of rows returned
 * or written.
 */
static uint64
execute(const char *sql, int expected, const pg_uuid_t *first, const pg_uuid_t *second)
{
	Oid			types[] = {UUIDOID, UUIDOID};
	Datum		values[] = {UUIDPGetDatum(first), UUIDPGetDatum(second)};
	Caller		caller;
	uint64		n;

	caller = act_as_owner();
	SPI_connect();
	if (SPI_execute_with_args(sql, second ? 2 : 1, types, values, NULL, false, 0) != expected)
		elog(ERROR, "could not execute \"%s\"", sql);
	n = SPI_processed;
	SPI_finish();
	act_as_caller(caller);
	return n;
}

void
hook_reference_add(const pg_uuid_t *hook_job, const pg_uuid_t *job)
{
	(void) execute("INSERT INTO jobq.hook_references (hook_job, job_id) VALUES ($1, $2)", SPI_OK_INSERT, hook_job, job);
}

bool
hook_reference_exists(const pg_uuid_t *job)
{
	return execute("SELECT FROM jobq.hook_references r WHERE r.job_id OPERATOR(pg_catalog.=) $1 LIMIT 1",
				   SPI_OK_SELECT, job, NULL) > 0;
}
