/*
 * Workflows and their runs: the lists, and a workflow with the graphs of its
 * versions.
 */
import {
  Button, Component, Facts, Fragment, Head, Since, Status, Time, ask, duration, h, link, millis, num, plural,
} from './ui.js';
import { writeJson } from './api.js';
import { Diagram } from './diagram.js';
import { Filters, Found, Pages } from './pages.js';
import { Table } from './table.js';
import { layersOf } from './graph.js';

const RENEW_MS = 3000;
const ended = new Set(['completed', 'skipped', 'cancelled', 'error']);

export const title = (route) => (route.name === 'runs' ? 'Runs' : route.id || 'Workflows');

const faint = (text) => h('span', { class: 'faint' }, text);

/* ---------- runs ---------- */

function Tasks({ run }) {
  const over = ['completed', 'skipped', 'cancelled', 'error'].reduce((sum, status) => sum + (run.tasks?.[status] || 0), 0);
  const all = Object.values(run.tasks || {}).reduce((sum, n) => sum + n, 0);
  const p = Math.round(run.progress ?? 0);
  return h('span', { class: 'used' }, h('span', { class: 'bar' }, h('span', { class: 'fill', style: { width: `${p}%` } })),
    h('span', { class: 'nobr', title: `${p}%` }, `${num(over)} / ${num(all)}`));
}

const runColumns = [
  { key: 'id', title: 'Run', class: 'nobr', render: (r) => h('a', { href: link(['runs', r.id]), class: 'id', title: r.id },
    `…${r.id.slice(-8)}`) },
  { key: 'workflow', title: 'Workflow', render: (r) => h('span', { class: 'nobr' },
    h('a', { href: link(['workflows', r.workflow]) }, r.workflow), faint(` ${r.version ?? ''}`)) },
  {
    key: 'status', title: 'Status', class: 'nobr',
    render: (r) => h(Fragment, null, h(Status, { status: r.status }), ' ',
      r.paused_reason !== null && !ended.has(r.status) && h(Status, { status: 'paused' })),
  },
  { key: 'tasks', title: 'Tasks over', class: 'nobr', render: (r) => h(Tasks, { run: r }) },
  { key: 'current', title: 'Now at, or error', class: 'brief',
    render: (r) => (r.error_msg ? h('span', { class: r.status === 'error' ? 'bad' : '' }, r.error_msg)
      : r.paused_reason || r.current_task_key || faint('–')) },
  { key: 'tenant', title: 'Tenant', class: 'opt', render: (r) => r.tenant ?? faint('–') },
  { key: 'created_at', title: 'Created', class: 'nobr roomy', render: (r) => h(Time, { at: r.created_at }) },
  {
    key: 'took', title: 'Took', class: 'n',
    render: (r) => {
      if (!r.started_at) {
        return faint('–');
      }
      return ended.has(r.status) ? duration((millis(r.completed_at) - millis(r.started_at)) / 1000) : h(Since, { at: r.started_at });
    },
  },
];

function Runs({ api, query = {}, limit, caption = 'Runs', columns = runColumns }) {
  const filtered = query.status || query.workflow;
  return h(Pages, { api, path: 'runs', query, limit, every: RENEW_MS, empty: filtered ? 'No run matches.'
    : 'No run has started. jobq.enqueue() of a workflow starts one.' },
    (items, again, rowClass) => h(Table, { rows: items, columns, caption, rowClass, href: (r) => link(['runs', r.id]) }));
}

function RunList({ route, api }) {
  const { workflow, status } = route.query;
  const names = (api.live.state.data?.types || []).map((t) => t.job_type).filter(Boolean);
  const fields = [{ name: 'workflow', label: 'Workflow', suggest: names },
    { name: 'status', label: 'Status', options: [['', 'all'],
      ...['running', 'completed', 'error', 'cancelled'].map((s) => [s, s])] }];
  return h(Fragment, null,
    h(Head, { title: 'Runs', about: 'Runs of workflows that have started, the newest first.' },
      h('a', { class: 'button', href: link('workflows') }, 'Workflows')),
    h(Filters, { route, fields }),
    h(Runs, { api, query: { workflow, status } }));
}

/* ---------- workflows ---------- */

class Lists extends Component {
  componentDidMount() {
    this.end = this.props.api.live.follow(({ data }) => this.setState({ live: data?.types }));
  }

  componentWillUnmount() {
    this.end();
  }

  columns() {
    const live = new Map((this.state.live || []).map((t) => [t.job_type, t]));
    const count = (key, heading, status) => ({
      key, title: heading, class: 'n', sort: (w) => live.get(w.name)?.[key],
      render: (w) => {
        const n = live.get(w.name)?.[key];
        return n ? h('a', { href: link('runs', { workflow: w.name, status }) }, num(n)) : faint(live.has(w.name) ? '0' : '–');
      },
    });
    return [
      { key: 'name', title: 'Workflow', class: 'wide', sort: (w) => w.name,
        render: (w) => h('a', { href: link(['workflows', w.name]) }, w.name) },
      { key: 'steps', title: 'Steps', class: 'n', sort: (w) => w.steps.length, render: (w) => num(w.steps.length) },
      { key: 'version', title: 'Version', class: 'n' },
      count('running', 'Running', 'running'), count('completed', 'Completed', 'completed'),
      count('dead', 'Failed', 'error'),
      { key: 'on_failure', title: 'On failure', class: 'opt' },
      { key: 'created_by', title: 'By', class: 'roomy' },
      { key: 'created_at', title: 'Since', class: 'nobr opt', render: (w) => h(Time, { at: w.created_at }) },
    ];
  }

  render({ api }) {
    return h(Fragment, null,
      h(Head, { title: 'Workflows', about: 'Job types whose work is other jobs. A run is a job of one.' },
        h('a', { class: 'button', href: link('runs') }, 'All runs')),
      h(Pages, { api, path: 'workflows', limit: 200, keyOf: (w) => w.name,
        empty: 'No workflow. jobq.create_workflow() makes one.' },
        (items, again, rowClass) => h(Table, { rows: items, rowKey: (w) => w.name, columns: this.columns(), caption: 'Workflows', rowClass,
          href: (w) => link(['workflows', w.name]) })),
      h('section', null, h('h2', null, 'Newest runs'), h(Runs, { api, limit: 20, caption: 'Newest runs' })));
  }
}

/* ---------- a workflow ---------- */

/* A step as its definition has it, for the drawing. */
function drawn(step) {
  const work = step.job_type || (step.event ? `event ${step.event}` : step.delay ? `sleeps ${step.delay}` : 'join');
  const rule = step.rule && step.rule !== 'success' && `rule ${step.rule}`;
  const line = [step.map && 'map of', work, step.if && 'if …', rule].filter(Boolean).join(' ');
  const after = step.after?.length ? `after ${step.after.join(', ')}` : 'starts with the run';
  return { ...step, line, about: [step.key, line, after, rule].filter(Boolean).join('; '),
    ended: true };
}

async function start(api, name) {
  const started = await ask({
    title: `Run ${name}`, submit: 'Start a run',
    text: 'A run is a job of the workflow; its payload is $.input of the steps.',
    fields: [{ name: 'payload', label: 'Payload', type: 'json', value: {} },
      { name: 'tenant', label: 'Tenant', type: 'text' },
      { name: 'priority', label: 'Priority', type: 'int' }],
    run: (values) => api.post('jobs', { job_type: name, ...values }),
  });
  if (started) {
    location.assign(link(['jobs', started.id]));
  }
}

/* The keys of a step that have no column of their own. */
function rest(step) {
  return Object.entries(step).filter(([key]) => !['key', 'job_type', 'after', 'rule', 'if', 'event', 'delay'].includes(key))
    .map(([key, value]) => h('div', { key }, faint(key), ' ',
      h('code', null, typeof value === 'string' ? value : writeJson(value))));
}

function Definition({ steps, route }) {
  const { order } = layersOf(steps);
  const byKey = new Map(steps.map((step) => [step.key, step]));
  const columns = [
    { key: 'key', title: 'Step', render: (s) => h('b', null, s.key) },
    { key: 'job_type', title: 'Work', render: (s) => (s.job_type ? h('a', { href: link(['types', s.job_type]) }, s.job_type)
      : faint(s.event ? `event ${s.event}` : s.delay ? `sleeps ${s.delay}` : 'join')) },
    { key: 'after', title: 'After', render: (s) => (s.after?.length
      ? h(Fragment, null, s.after.join(', '), s.rule && s.rule !== 'success' && faint(` (${s.rule})`)) : faint('–')) },
    { key: 'if', title: 'If', class: 'opt', render: (s) => (s.if ? h('code', null, s.if) : faint('–')) },
    { key: 'rest', title: 'Further', class: 'wide opt', render: (s) => (rest(s).length ? rest(s) : faint('–')) },
  ];
  return h(Table, { rows: order.map((key) => byKey.get(key)), rowKey: (s) => s.key, columns, compact: true,
    caption: 'Steps',
    rowClass: (s) => (s.key === route.query.step ? 'selected' : undefined) });
}

function Workflow({ route, api }) {
  const name = route.id;
  return h(Found, { api, title: name, path: ['workflows', name], query: { limit: 200 } }, ({ items }) => {
    const shown = items.find((w) => String(w.version) === route.query.version) || items.find((w) => w.is_active)
      || items[0];
    const steps = shown.steps.map(drawn);
    return h(Fragment, null,
      h(Head, {
        title: name,
        about: h(Fragment, null, `Workflow, version ${shown.version}, ${shown.is_active ? 'active' : 'no longer active'}, by `,
          shown.created_by, ' ', h(Time, { at: shown.created_at })),
      },
        h('a', { class: 'button', href: link('runs', { workflow: name }) }, 'Runs'),
        h('a', { class: 'button', href: link(['types', name]) }, 'Settings'),
        api.can('enqueue') && h(Button, { class: 'primary', icon: 'play', onClick: () => start(api, name) }, 'Run …')),
      items.length > 1 && h('div', { class: 'chips', role: 'navigation', 'aria-label': 'Versions' },
        items.map((w) => h('a', {
          key: w.version, href: link(route.path, { version: w.is_active ? '' : w.version }),
          'aria-current': w === shown ? 'true' : undefined,
      }, `version ${w.version}`, w.is_active && faint(' active')))),
      h('section', null, h('h2', null, plural(steps.length, 'step')),
        h(Diagram, { key: shown.version, steps, href: (step) => link(route.path, { ...route.query, step }),
          selected: route.query.step, label: `Graph of ${plural(steps.length, 'step')}` })),
      h('section', null, h(Definition, { steps: shown.steps, route })),
      h('section', null, h(Facts, {
        rows: [['On failure', shown.on_failure],
          ['Output', shown.output ? h('code', null, writeJson(shown.output)) : 'results of the last steps']],
      })),
      h('section', null, h('h2', null, 'Newest runs'),
        h(Runs, { api, query: { workflow: name }, limit: 10, caption: `Newest runs of ${name}`,
          columns: runColumns.filter((c) => c.key !== 'workflow') })));
  });
}

export default class Screen extends Component {
  render({ route, api }) {
    if (route.name === 'runs') {
      return h(RunList, { route, api });
    }
    return route.id ? h(Workflow, { route, api }) : h(Lists, { api });
  }
}
