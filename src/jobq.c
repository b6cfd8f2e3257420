/*
 * jobq.c
 *	  Initialization of the library.
 *
 * Preloaded (shared_preload_libraries): shared memory, the launcher, the
 * utility hook.  Loaded later by a session: settings and functions only; jobs
 * are stored, and no process runs them.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "base/errors.h"
#include "enqueue/quota.h"
#include "lifecycle/ddl_hook.h"
#include "lifecycle/launcher.h"
#include "lifecycle/statement_hooks.h"
#include "limits/job_limit.h"
#include "limits/kill_switch.h"
#include "pressure/pressure_rules.h"
#include "registry/job_types.h"
#include "schedule/schedule_row.h"
#include "security/access.h"
#include "settle/alerts.h"
#include "settle/artifacts.h"
#include "settle/hooks.h"
#include "settle/ledger.h"
#include "shared/crash_record.h"
#include "shared/publish_jobs.h"
#include "shared/stat_store.h"
#include "sql_worker/handler_statements.h"
#include "tables/edge_table.h"
#include "tables/event_log.h"
#include "tables/finished_keys.h"
#include "tables/home.h"
#include "tables/queue_table.h"
#include "tables/queue_triggers.h"
#include "tables/table_shape.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static const Shape *const shapes[] = {
	&home_shape, &job_types_shape, &job_type_env_shape, &queue_shape, &limits_shape, &stopped_shape, &signals_shape, &pressure_rules_shape,
	&history_shape, &dead_letters_shape, &dead_letter_count_shape, &events_shape, &alerts_shape, &access_shape,
	&tenant_check_shape, &tenant_quotas_shape, &quota_jobs_shape, &hook_references_shape, &schedules_shape,
	&dependencies_shape, &artifacts_shape, &unique_for_types_shape
};

void
_PG_init(void)
{
	bool		preloaded = process_shared_preload_libraries_in_progress;

	jobq_define_settings(preloaded);
	shapes_set(shapes, lengthof(shapes));
	triggers_set_run_types(job_type_is_workflow);
	stat_set_type_has_left(job_type_has_left);
	RegisterXactCallback(publish_xact_callback, NULL);
	RegisterSubXactCallback(publish_subxact_callback, NULL);
	if (IsBinaryUpgrade)
		return;
	hints_install_hook();
	statements_install_hook();
	if (!preloaded)
		return;
	handler_statements_install_hooks();
	shmem_install_hooks();
	ddl_install_hooks();
	crash_record_create();
	launcher_register();
}
