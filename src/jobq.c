/*
 * jobq.c
 *	  What happens when the library is loaded.
 *
 * Preloaded (shared_preload_libraries): shared memory, the launcher, the utility hook.  Loaded later by
 * a session: settings and functions only; jobs are stored, and nothing runs them.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "base/error_hints.h"
#include "lifecycle/ddl_hook.h"
#include "lifecycle/launcher.h"
#include "lifecycle/statement_hooks.h"
#include "maintenance/standby_fence.h"
#include "shared/crash_record.h"
#include "shared/publish_jobs.h"
#include "sql_worker/handler_statements.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	bool		preloaded = process_shared_preload_libraries_in_progress;

	jobq_define_settings(preloaded);
	RegisterXactCallback(publish_xact_callback, NULL);
	RegisterSubXactCallback(publish_subxact_callback, NULL);
	if (IsBinaryUpgrade)
		return;
	hints_install_hook();
	statements_install_hook();
	handler_statements_install_hooks(); /* run_inline needs them, preloaded or not */
	if (!preloaded)
		return;
	shmem_install_hooks();
	ddl_install_hooks();
	fence_install_hooks();
	inflight_create();
	launcher_register();
}
