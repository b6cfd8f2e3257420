// A request for each operation that is answered with 200: the members are path (arguments), query
// and body.  They are sent in this order; `after` reads what later ones need from the answer.
// Lists in `empty` may have no items; the others must, so that their schema is tested.
const now = Date.now();
const iso = (ms) => new Date(ms).toISOString();
const step = (key, after = []) => ({ key, job_type: 'pull', after });

export const empty = new Set(['get_workers', 'get_lanes', 'get_series']);

export const cases = [
  ['post_session', (t) => ({ body: { user: t.user, password: t.password }, anonymous: true })],
  ['get_session', () => ({})],
  ['post_types', () => ({ body: { name: 'own', max_attempts: 3, options: { alert: false } } })],
  ['get_types', () => ({ query: { limit: 2 } })],
  ['get_types_name', () => ({ path: { name: 'own' } })],
  ['patch_types_name', () => ({ path: { name: 'own' }, body: { max_concurrent: 50, reset: ['timeout'] } })],
  ['post_types_name_pause', () => ({ path: { name: 'own' }, body: { reason: 'test', duration: '1 hour' } })],
  ['post_types_name_resume', () => ({ path: { name: 'own' } })],

  ['post_jobs', (t) => ({
    body: { job_type: 'pull', payload: { n: 1 }, priority: 5, tenant: 'acme', metadata: { m: 1 }, concurrency_key: 'k' },
    after: (a) => { t.job = a.id; },
  })],
  ['get_jobs', () => ({ query: { job_type: 'pull', payload_contains: '{"n":1}', limit: 1 } })],
  ['get_jobs_id', (t) => ({ path: { id: t.job } })],
  ['patch_jobs_id', (t) => ({ path: { id: t.job }, body: { priority: 7 } })],
  ['get_jobs_id_why', (t) => ({ path: { id: t.job } })],
  ['post_jobs_id_cancel', (t) => ({ path: { id: t.job }, body: { reason: 'test' } })],
  ['post_jobs_id_retry', (t) => ({ path: { id: t.job } })],
  ['post_intentions_cancel_job', (t) => ({ body: { job_id: t.job } })],
  ['post_intentions_retry_job', (t) => ({ body: { job_id: t.job } })],

  ['post_claim', (t) => ({
    body: { job_types: ['lease'], max_jobs: 5, worker: 'w', lease: '10 min', wait: '20 s' },
    until: (a) => { (t.leases ??= []).push(...a.items); return t.leases.length >= 5; },
  })],
  ['post_jobs_id_heartbeat', (t) => ({ ...lease(t, 0, { progress: 12.5, data: { step: 1 } }) })],
  ['post_jobs_id_complete', (t) => ({ ...lease(t, 1, { result: [1] }) })],
  ['post_jobs_id_fail', (t) => ({ ...lease(t, 2, { error: 'broken', error_code: 'E1', details: { d: 1 } }) })],
  ['get_jobs_id_events', (t) => ({ path: { id: t.leases[2].id } })],
  ['post_jobs_id_skip', (t) => ({ ...lease(t, 3, { reason: 'test' }) })],
  ['post_jobs_id_snooze', (t) => ({ ...lease(t, 4, { delay: '1 hour' }) })],
  ['post_jobs_id_rerun', (t) => ({ path: { id: t.leases[1].id }, body: { payload: { n: 2 } } })],

  ['post_bulk', (t) => ({ body: { action: 'cancel', filter: { job_type: 'own' } }, after: (a) => { t.token = a.token; } })],
  ['post_bulk_token', (t) => ({ path: { token: t.token } })],
  ['get_bulk_token', (t) => ({ path: { token: t.token } })],
  ['delete_bulk_token', (t) => ({ path: { token: t.token } })],

  ['post_schedules', () => ({ body: { name: 'nightly', cron: '0 3 * * *', job_type: 'pull', payload: { s: 1 }, tenant: 'acme' } })],
  ['get_schedules', () => ({ query: { search: 'night' } })],
  ['get_schedules_name', () => ({ path: { name: 'nightly' }, query: { tenant: 'acme' } })],
  ['patch_schedules_name', () => ({ path: { name: 'nightly' }, body: { cron: '@daily', tenant: 'acme' } })],
  ['post_schedules_name_pause', () => ({ path: { name: 'nightly' }, body: { tenant: 'acme', reason: 'test' } })],
  ['post_schedules_name_resume', () => ({ path: { name: 'nightly' }, body: { tenant: 'acme' } })],
  ['post_schedules_name_run', () => ({ path: { name: 'nightly' }, body: { tenant: 'acme' } })],
  ['get_schedules_name_runs', () => ({ path: { name: 'nightly' }, query: { tenant: 'acme' } })],
  ['post_schedules_name_backfill', () => ({
    path: { name: 'nightly' }, body: { tenant: 'acme', since: iso(now - 3 * 86_400_000), until: iso(now), max_runs: 10 },
  })],
  ['get_next_runs', () => ({ query: { cron: '*/5 * * * *', n: 2, timezone: 'UTC' } })],
  ['delete_schedules_name', () => ({ path: { name: 'nightly' }, query: { tenant: 'acme' } })],

  ['post_workflows_check', () => ({ body: { steps: [{ ...step('a'), afterr: [] }] } })],
  ['post_workflows', () => ({ body: { name: 'flow', steps: [step('a'), step('b', ['a'])] } })],
  ['get_workflows', () => ({ query: { limit: 1 } })],
  ['get_workflows_name', () => ({ path: { name: 'flow' } })],
  ['post_jobs', (t) => ({ body: { job_type: 'flow', payload: {} }, after: (a) => { t.run = a.id; } })],
  ['get_runs', () => ({ query: { workflow: 'flow' }, until: (a) => a.items.length > 0 })],
  ['get_runs_id', (t) => ({ path: { id: t.run }, until: (a) => a.tasks.length > 0 })],
  ['get_runs_id_tasks', (t) => ({ path: { id: t.run } })],
  ['post_runs_id_pause', (t) => ({ path: { id: t.run }, body: { reason: 'test' } })],
  ['post_runs_id_resume', (t) => ({ path: { id: t.run } })],
  ['post_workflows', () => ({ body: { name: 'waits', steps: [{ key: 'e', event: 'approved' }] } })],
  ['post_jobs', (t) => ({ body: { job_type: 'waits', payload: {} }, after: (a) => { t.waits = a.id; } })],
  ['get_runs_id', (t) => ({ path: { id: t.waits }, until: (a) => a.tasks.length > 0 })],
  ['post_runs_id_event', (t) => ({ path: { id: t.waits }, body: { event: 'approved', data: { by: 'anna' } } })],
  ['get_jobs_id', (t) => ({ path: { id: t.waits }, until: (a) => a.status === 'completed' })],
  ['post_jobs_id_cancel', (t) => ({ path: { id: t.run } })],
  ['get_jobs_id', (t) => ({ path: { id: t.run }, until: (a) => a.status === 'cancelled' })],
  ['post_runs_id_retry', (t) => ({ path: { id: t.run } })],

  ['put_limits_name', () => ({ path: { name: 'l 1' }, body: { max_concurrent: 2, rate_limit: 5, rate_window: '1 min' } })],
  ['get_limits', () => ({})],
  ['get_limits_usage', () => ({})],
  ['delete_limits_name', () => ({ path: { name: 'l 1' } })],
  ['put_signals_name', () => ({ path: { name: 'livekit' }, body: { active: true, ttl: '1 hour' } })],
  ['get_signals', () => ({})],
  ['put_rules', () => ({ body: { job_type: 'pull', signal: 'livekit', priority_adj: -5 } })],
  ['get_rules', () => ({})],
  ['post_admin_resources_update_rule', () => ({ body: { job_type: 'pull', cpu_weight: 2, timeout_seconds: 90.5, livekit_priority_adj: -7 } })],
  ['get_admin_resources', () => ({})],
  ['delete_rules', () => ({ query: { job_type: 'pull', signal: 'livekit' } })],
  ['delete_signals_name', () => ({ path: { name: 'livekit' }, query: { force: 'true' } })],
  ['put_tenants_tenant', () => ({ path: { tenant: 'acme' }, body: { max_live: 1000 } })],
  ['get_tenants', () => ({})],
  ['delete_tenants_tenant', () => ({ path: { tenant: 'gone' } })],

  ['get_overview', () => ({})],
  ['get_stream', () => ({})],
  ['get_errors', () => ({ query: { max_rows: 5 } })],
  ['get_events', () => ({ query: { job_type: 'pull', limit: 1 } })],
  ['get_alerts', () => ({ query: { severity: 'high' } })],
  ['get_audit', () => ({ query: { limit: 3 } })],
  ['get_workers', () => ({})],
  ['get_lanes', () => ({})],
  ['get_series', () => ({ query: { step: '10 seconds' } })],
  ['post_drain', () => ({ body: { timeout: '10 ms' } })],
  ['post_stop', () => ({ body: { reason: 'test' } })],
  ['post_start', () => ({})],
  ['delete_types_name', () => ({ path: { name: 'own' }, query: { force: 'true' } })],
  ['get_admin_jobs', () => ({ query: { type: 'pull', limit: 1 } })],
  ['get_admin_resources_disk', () => ({})],
  ['get_openapi_json', () => ({})],
  ['get_metrics', () => ({})],
  ['get_metrics', () => ({ headers: { Accept: 'application/openmetrics-text' } })],
  ['get_health', () => ({})],
  ['get_livez', () => ({ anonymous: true })],
  ['delete_session', () => ({})],
];

function lease(t, n, body) {
  return { path: { id: t.leases[n].id }, body: { lease_token: t.leases[n].lease_token, ...body } };
}
