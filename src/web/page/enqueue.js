/* The form that enqueues a job. */
import { ask } from './ui.js';

const fields = (types) => [
  { name: 'job_type', label: 'Type', required: true, suggest: types },
  { name: 'tenant', label: 'Tenant' },
  { name: 'payload', label: 'Payload', type: 'json', rows: 7, full: true, help: 'JSON' },
  { name: 'priority', label: 'Priority', type: 'int', help: '-100 to 100; empty: that of the type' },
  { name: 'delay', label: 'Delay', type: 'interval', placeholder: '10 min', help: 'or a time below' },
  { name: 'scheduled_for', label: 'Not before', type: 'time', placeholder: '2026-11-26 14:30', help: 'UTC' },
  { name: 'max_attempts', label: 'Attempts at most', type: 'int' },
  { name: 'timeout', label: 'Timeout of an attempt', type: 'interval', placeholder: '5 min' },
  { name: 'concurrency_key', label: 'Concurrency key', help: 'jobs with the same key do not run at once' },
  { name: 'unique_key', label: 'Unique key', help: 'one live job per type, tenant and key' },
  { name: 'on_conflict', label: 'If the unique key is taken', type: 'select', options: [['', 'return that job'], ['replace', 'replace that job'], ['error', 'refuse this one']] },
  { name: 'metadata', label: 'Metadata', type: 'json', rows: 2, full: true },
];

/* Resolves with {id}, or null. */
export function askEnqueue(api, values) {
  const types = (api.live.state.data?.types || []).map((t) => t.job_type).filter(Boolean);
  return ask({
    title: 'Enqueue a job', submit: 'Enqueue', wide: true, fields: fields(types), values,
    run: (given) => api.post('jobs', given),
  });
}
