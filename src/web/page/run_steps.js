/*
 * The steps of a run with their tasks, statuses and words, made from the reply
 * of the server.
 */
import { duration, millis, now, num, short } from './ui.js';
import { criticalPath } from './graph.js';

export const ended = new Set(['completed', 'skipped', 'cancelled', 'error']);

const units = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };

/* The seconds of an interval as people write it in steps: "3 days", "1 h 30 min"; null: other words. */
export function written(text) {
  const parts = [...String(text ?? '').matchAll(/(\d+(?:\.\d+)?)\s*(s|m(?!o)|h|d|w)[a-z]*/g)];
  return parts.length ? parts.reduce((sum, [, n, unit]) => sum + n * units[unit], 0) : null;
}

/* Steps that tasks have added: they have rows, and are in no version. */
function added(steps, tasks) {
  const known = new Set(steps.map((step) => step.key));
  return tasks.filter((task) => !known.has(task.task_key))
    .map((task) => ({ key: task.task_key, job_type: task.job_type ?? undefined, rule: task.after_rule ?? undefined,
      added: true }));
}

export function spanOf(facts) {
  return facts.start !== undefined ? ((facts.end ?? now()) - facts.start) / 1000 : null;
}

/* Counts of a map's tasks by status, and of what undid a step. */
function countsOf(maps, step) {
  const of = (key) => Object.fromEntries(maps.filter((row) => row.task_key === key).map((row) => [row.status, row.n]));
  const [counts, undone] = [of(step.key), of(`${step.key}.undo`)];
  return { ...(Object.keys(counts).length && { counts }), ...(Object.keys(undone).length && { undone }) };
}

/* Returns what a step that has not begun waits for, in words. */
function waits(step, byKey, paused) {
  const parents = step.after.filter((key) => !byKey.get(key).ended);
  if (parents.length) {
    const rule = step.rule && step.rule !== 'success' ? ` (${step.rule})` : '';
    return `waits for ${parents.length > 2 ? `${parents.length} steps` : parents.join(', ')}${rule}`;
  }
  if (step.event) {
    return `event ${step.event}`;
  }
  if (step.delay && !step.job_type) {
    return `sleeps ${step.delay}`;
  }
  return paused ? 'paused' : 'waits';
}

/* The tasks of a map, in words: as many as have been made so far. */
function members(counts) {
  const words = [['completed', 'done'], ['error', 'failed'], ['running', 'running'], ['retry', 'retry'],
    ['pending', 'waiting'], ['blocked', 'blocked'],
    ['skipped', 'skipped'], ['cancelled', 'cancelled']];
  return words.filter(([status]) => counts[status]).map(([status, word]) => `${short(counts[status])} ${word}`);
}

/* Whether a step's compensation has run. */
function undone(step) {
  const counts = step.undone || {};
  return !step.undone ? '' : counts.completed ? ', undone' : counts.error ? ', not undone' : ', being undone';
}

/* The second line of a box. */
function lineOf(step, byKey, paused) {
  const took = spanOf(step.facts);
  if (step.counts) {
    return members(step.counts).join(', ') + undone(step);
  }
  switch (step.status) {
    case 'blocked': return waits(step, byKey, paused);
    case 'retry': return `retry after ${step.task.attempts}`;
    case 'running': return step.task.progress > 0 ? `running ${Math.round(step.task.progress)}%`
      : `running ${duration(Math.floor(took))}`;
    case 'completed': case 'error':
      return (took === null || !step.job_type ? step.status
        : `${step.status === 'error' ? 'failed' : 'done'} ${duration(took)}`)
        + undone(step);
    default: return step.status || '';
  }
}

/* What a reader of the screen hears of a box, and its tooltip. */
function aboutOf(step) {
  const after = step.after.length
    ? `after ${step.after.join(', ')}${step.rule && step.rule !== 'success' ? `, rule ${step.rule}` : ''}`
    : 'starts with the run';
  const counts = step.counts && Object.entries(step.counts).map(([status, n]) => `${num(n)} ${status}`).join(', ');
  const status = step.status === 'error' ? 'failed' : step.status || 'not begun';
  return [step.key, status, counts, step.status === 'blocked' && step.line, after].filter(Boolean).join('; ');
}

/* Returns the steps of a run with their tasks, statuses and words. */
export function stepsOf({ run, steps, tasks, maps }) {
  const rows = new Map(tasks.map((task) => [task.task_key, task]));
  const keys = new Map(tasks.map((task) => [task.id, task.task_key]));
  const all = [...(steps || []), ...added(steps || [], tasks)];
  const known = new Set(all.map((step) => step.key));
  const result = all.map((step) => {
    const task = rows.get(step.key);
    const from = [...(step.after || []), ...(task?.after || []).map((id) => keys.get(id))];
    const after = [...new Set(from)].filter((key) => known.has(key));
    const status = task?.status;
    const facts = {
      start: task?.started_at ? millis(task.started_at) : undefined,
      end: ended.has(status) ? millis(task.completed_at) : undefined,
    };
    return { ...step, after, task, status, ended: ended.has(status), facts, ...countsOf(maps, step) };
  });
  const byKey = new Map(result.map((step) => [step.key, step]));
  for (const step of result) {
    step.line = lineOf(step, byKey, run.paused_reason !== null);
    step.about = aboutOf(step);
    step.open = step.status === 'blocked' && Boolean(step.event) && step.after.every((key) => byKey.get(key).ended);
  }
  return result;
}

/* The mean run of each job type, in ms, as far as the overview has it. */
export function usual(api) {
  return new Map((api.live.state.data?.types || []).map((t) => {
    const n = (t.run_buckets || []).reduce((sum, x) => sum + x, 0);
    return [t.job_type, n ? (t.run_sum * 1000) / n : undefined];
  }));
}

export function pathOf(api, steps) {
  const means = usual(api);
  const facts = new Map(steps.map((step) => [step.key, {
    ...step.facts,
    expected: step.delay && !step.job_type ? (written(step.delay) || 0) * 1000 : means.get(step.job_type) ?? 0,
  }]));
  return criticalPath(steps.filter((step) => step.status !== 'skipped'), facts, now());
}
