/*
 * process_start.c
 *	  How jobq's processes are registered: see process_start.h.
 */
#include "jobq.h"

#include "shared/process_start.h"

void
describe_worker(BackgroundWorker *worker, const char *type, const char *function, Oid dboid)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	worker->bgw_main_arg = ObjectIdGetDatum(dboid);
	strlcpy(worker->bgw_library_name, "jobq", sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, function, sizeof(worker->bgw_function_name));
	strlcpy(worker->bgw_type, type, sizeof(worker->bgw_type));
	if (OidIsValid(dboid))
		snprintf(worker->bgw_name, sizeof(worker->bgw_name), "%s for database %u", type, dboid);
	else
		strlcpy(worker->bgw_name, type, sizeof(worker->bgw_name));
}
