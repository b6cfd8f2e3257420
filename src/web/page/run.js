/*
 * A run of a workflow: its graph with live statuses, what waits for what, the
 * critical path, and what can be done about it.
 */
import {
  Badge, Button, Component, Facts, Fragment, Head, Icon, Since, Status, Time, act, ask, duration, h, link, millis, now, num,
  onKey, plural, refine,
} from './ui.js';
import { writeJson } from './api.js';
import { Diagram } from './diagram.js';
import { Found, Pages } from './pages.js';
import { Table } from './table.js';
import { layersOf } from './graph.js';
import { ended, pathOf, spanOf, stepsOf, usual, written } from './run_steps.js';

const RENEW_MS = 2000;
const ENDED_MS = 20000;
const GREAT = 300; /* steps */
const statuses = ['error', 'running', 'retry', 'pending', 'blocked', 'completed', 'skipped', 'cancelled'];

export const title = (route) => `Run …${String(route.id).slice(-8)}`;

const faint = (text) => h('span', { class: 'faint' }, text);

/* ---------- what can be done ---------- */

function retry(api, run, from, again) {
  return ask({
    title: from ? `Retry from ${from}` : 'Retry the run', submit: 'Retry',
    text: from ? `${from} and all steps behind it run again; the others keep their results.`
      : 'Failed and cancelled tasks run again, with all behind them; completed ones keep their results.',
    fields: [{ name: 'version', label: 'With version', type: 'int', help: `empty: ${run.version}, the one that it has` }],
    run: ({ version }) => api.post(['runs', run.id, 'retry'], { from_task: from, version }).then(again),
  });
}

function pause(api, run, again) {
  return ask({
    title: 'Pause the run', submit: 'Pause', text: 'Running tasks end; no other one starts. Delays and the deadline go on.',
    fields: [{ name: 'reason', label: 'Reason', type: 'text', required: true }],
    run: (values) => api.post(['runs', run.id, 'pause'], values).then(again),
  });
}

function cancel(api, run, again) {
  return ask({
    title: 'Cancel the run', submit: 'Cancel the run', tone: 'danger', text: 'Its live tasks are cancelled.',
    fields: [{ name: 'reason', label: 'Reason', type: 'text' }],
    run: (values) => api.post(['jobs', run.id, 'cancel'], values).then(again),
  });
}

function send(api, run, event, again) {
  return ask({
    title: `Send event ${event}`, submit: 'Send', text: 'The steps that wait for it complete; its data are their result.',
    fields: [{ name: 'data', label: 'Data', type: 'json', placeholder: '{"by": "Ann"}' }],
    run: ({ data }) => api.post(['runs', run.id, 'event'], { event, data }).then(again),
  });
}

/* The buttons of a run; c cancels it, r retries it. */
class Actions extends Component {
  componentDidMount() {
    this.endKeys = onKey((key) => {
      const { api, run, again } = this.props;
      if (key === 'c' && this.live()) {
        cancel(api, run, again);
        return true;
      }
      if (key === 'r' && this.retriable()) {
        retry(api, run, null, again);
        return true;
      }
      return false;
    });
  }

  componentWillUnmount() {
    this.endKeys();
  }

  live() {
    return this.props.api.can('admin') && !ended.has(this.props.run.status);
  }

  /* A run that was compensated is not retried. */
  retriable() {
    const { api, run, steps } = this.props;
    return api.can('admin') && ['error', 'cancelled'].includes(run.status) && !steps.some((step) => step.undone);
  }

  render({ api, run, again }) {
    const paused = run.paused_reason !== null;
    const resume = () => act(() => api.post(['runs', run.id, 'resume']).then(again), 'Run resumed');
    return h(Fragment, null,
      h('a', { class: 'button', href: link(['jobs', run.id]) }, 'As a job'),
      this.live() && paused && h(Button, { icon: 'play', onClick: resume }, 'Resume'),
      this.live() && !paused && h(Button, { icon: 'pause', onClick: () => pause(api, run, again) }, 'Pause …'),
      this.live() && h(Button, { class: 'danger', title: 'Key: c', onClick: () => cancel(api, run, again) }, 'Cancel …'),
      this.retriable()
        && h(Button, { icon: 'redo', class: 'primary', title: 'Key: r', onClick: () => retry(api, run, null, again) }, 'Retry …'));
  }
}

/* ---------- parts of the screen ---------- */

function Progress({ run }) {
  const p = Math.round(run.progress ?? 0);
  return h('span', { class: 'used' },
    h('span', { class: 'bar', role: 'progressbar', 'aria-label': 'Progress', 'aria-valuenow': p, 'aria-valuemin': 0,
      'aria-valuemax': 100 },
    h('span', { class: 'fill', style: { width: `${p}%` } })), `${p}%`);
}

function Summary({ run }) {
  const live = !ended.has(run.status);
  return h('div', { class: 'short' }, h(Facts, {
    rows: [
      ['Status', h(Fragment, null, h(Status, { status: run.status }), ' ',
        live && run.paused_reason !== null && h(Status, { status: 'paused' }))],
      ['Progress', h(Progress, { run })],
      ['Started', h(Time, { at: run.started_at })],
      ['Took', !live && run.started_at && duration((millis(run.completed_at) - millis(run.started_at)) / 1000)],
      ['Deadline', live && h(Time, { at: run.deadline })],
      ['Now at', run.current_task_key],
      ['Tenant', run.tenant && h('a', { href: link(['tenants', run.tenant]) }, run.tenant)],
      ['Priority', run.priority ? num(run.priority) : null],
    ],
  }));
}

function Notes({ run }) {
  const live = !ended.has(run.status);
  return h(Fragment, null,
    live && run.paused_reason !== null && h('div', { class: 'note warn' }, h(Icon, { name: 'pause' }),
      h('span', null, run.paused_reason ? `Paused: ${run.paused_reason}` : 'Paused')),
    run.error_msg && h('div', { class: `note ${run.status === 'error' ? 'bad' : ''}` },
      h(Icon, { name: run.status === 'error' ? 'cross' : 'ban' }),
      h('span', null, run.error_code && h('code', null, run.error_code, ' '), run.error_msg)));
}

/* How many steps have each status: the key to the colours, too. */
function Legend({ steps }) {
  const n = new Map();
  steps.forEach((step) => n.set(step.status, (n.get(step.status) || 0) + 1));
  return h('ul', { class: 'key-of-colours' },
    statuses.filter((status) => n.has(status)).map((status) => h('li', { key: status },
    h(Status, { status }, `${status} ${n.get(status)}`))));
}

function Critical({ path, steps, run, href }) {
  const byKey = new Map(steps.map((step) => [step.key, step]));
  const live = !ended.has(run.status);
  const left = live && path.end ? (path.end - now()) / 1000 : 0;
  return h('p', { class: 'way' }, h('b', null, 'Critical path'), ' ',
    path.keys.map((key, i) => {
      const took = spanOf(byKey.get(key).facts);
      return h(Fragment, { key }, i > 0 && h('span', { class: 'arrow', 'aria-label': 'then' }, ' → '),
        h('a', { href: href(key) }, key), took !== null && byKey.get(key).job_type && faint(` ${duration(took)}`));
    }),
    left > 1 && faint(`; by the usual runs of its types about ${duration(left)} left`));
}

/* Steps that run for much longer than their types usually do. */
function Late({ api, steps, href }) {
  const means = usual(api);
  const late = steps.filter((step) => step.status === 'running' && means.get(step.job_type) && spanOf(step.facts) * 1000 > 2 * means.get(step.job_type) + 5000);
  return late.length > 0 && h('p', { class: 'way' }, h('b', null, 'Late'), ' ',
    late.map((step, i) => h(Fragment, { key: step.key }, i > 0 && ', ', h('a', { href: href(step.key) }, step.key),
      ' runs for ', h(Since, { at: step.facts.start }), faint(`, usually ${duration(means.get(step.job_type) / 1000)}`))));
}

function Keys({ keys, href, none }) {
  return keys.length ? keys.map((key, i) => h(Fragment, { key }, i > 0 && ', ', h('a', { href: href(key) }, key)))
    : faint(none);
}

/* The tasks of a map, by pages. */
function Members({ api, run, step, route }) {
  const status = route.query.status || '';
  const columns = [
    { key: 'task_key', title: 'Task', class: 'nobr', render: (t) => h('a', { href: link(['jobs', t.id]) }, t.task_key) },
    { key: 'status', title: 'Status', render: (t) => h(Status, { status: t.status }) },
    { key: 'attempts', title: 'Attempts', class: 'n opt' },
    {
      key: 'took', title: 'Ran', class: 'n',
      render: (t) => (t.started_at ? duration((millis(t.completed_at ?? now()) - millis(t.started_at)) / 1000)
        : faint('–')),
    },
    {
      key: 'error_msg', title: 'Error', class: 'brief',
      render: (t) => t.error_msg || (t.progress > 0 ? `${Math.round(t.progress)}%` : ''),
    },
  ];
  return h(Fragment, null,
    h('div', { class: 'chips' }, ['', ...statuses.filter((s) => step.counts?.[s])].map((s) => h('a', {
      key: s, href: link(route.path, { ...route.query, status: s }), 'aria-current': s === status ? 'true' : undefined,
    }, s ? `${s} ${num(step.counts[s])}` : 'all'))),
    h(Pages, {
      api, path: ['runs', run.id, 'tasks'], query: { task_key: step.key, status }, every: ended.has(run.status) ? 0
        : RENEW_MS,
      empty: 'No task.',
    }, (items, again, rowClass) => h(Table, {
      rows: items.filter((t) => t.task_key !== step.key), rowClass, columns, caption: `Tasks of ${step.key}`, compact: true,
      href: (t) => link(['jobs', t.id]),
    })));
}

/* What a step does, in words. */
function Work({ step }) {
  if (step.job_type) {
    return h('a', { href: link(['types', step.job_type]) }, step.job_type);
  }
  return step.event ? `waits for event ${step.event}` : step.delay ? `sleeps ${step.delay}` : 'joins steps';
}

function StepFacts({ step, steps, href }) {
  const byKey = new Map(steps.map((other) => [other.key, other]));
  const open = step.after.filter((key) => !byKey.get(key).ended);
  const over = step.after.filter((key) => byKey.get(key).ended);
  const behind = steps.filter((other) => other.after.includes(step.key)).map((other) => other.key);
  const took = spanOf(step.facts);
  const { task } = step;
  return h(Facts, {
    rows: [
      ['Work', h(Work, { step })],
      ['Waits for', step.open ? `the event ${step.event}` : h(Keys, { keys: open, href, none: 'nothing' })],
      ['After', over.length > 0 && h(Keys, { keys: over, href })],
      ['Rule', step.after.length > 0 && (step.rule || 'success')],
      ['Behind it', h(Keys, { keys: behind, href, none: 'no step' })],
      ['If', step.if && h('code', null, step.if)],
      ['Map', step.map && h('code', null, step.map)],
      ['At most', step.event && step.timeout],
      ['Attempts', task?.attempts > 0 && num(task.attempts)],
      ['Started', task?.started_at && h(Time, { at: task.started_at })],
      [step.ended ? 'Took' : 'For', took !== null && duration(step.ended ? took : Math.floor(took))],
      ['Next attempt', step.status === 'retry' && h(Time, { at: task.scheduled_for })],
      ['Undone by', step.compensate && [step.compensate.job_type, ...Object.keys(step.undone || {})].join(', ')],
    ],
  });
}

/* The step that is selected: what it is, what it waits for, what waits for it. */
function Step({ api, run, step, steps, route, href, again }) {
  const retriable = ended.has(run.status) && !steps.some((other) => other.undone);
  const { task } = step;
  return h('section', { class: 'panel step', 'aria-labelledby': 'step' },
    h('div', { class: 'section-head' },
      h('h2', { id: 'step' }, step.key),
      step.status ? h(Status, { status: step.status }) : faint('not begun'),
      step.added && h(Badge, { title: 'by jobq.add_tasks' }, 'added'),
      h('span', { class: 'grow' }),
      task && h('a', { class: 'button small', href: link(['jobs', task.id]) }, 'Job'),
      step.event && !step.ended && api.can('enqueue')
        && h(Button, { class: 'small primary', onClick: () => send(api, run, step.event, again) }, 'Send event …'),
      retriable && api.can('admin')
        && h(Button, { class: 'small', icon: 'redo', onClick: () => retry(api, run, step.key, again) },
          'Retry from here …'),
      h(Button, { class: 'small quiet', icon: 'cross', 'aria-label': 'Close',
        onClick: () => refine(route, { step: '', status: '' }) })),
    task?.error_msg && h('p', { class: step.status === 'error' ? 'bad' : '' },
      task.error_code && h('code', null, task.error_code, ' '), task.error_msg),
    h('div', { class: 'short' }, h(StepFacts, { step, steps, href })),
    step.map && step.counts && h(Members, { api, run, step, route }));
}

/* Events that steps wait for now. */
function Events({ api, run, steps, again }) {
  const open = steps.filter((step) => step.open);
  return open.length > 0 && h('ul', { class: 'events' },
    open.map((step) => h('li', { key: step.key, class: 'note' }, h(Icon, { name: 'clock' }),
    h('span', { class: 'grow' }, h('b', null, step.key), ' waits for the event ', h('b', null, step.event),
      step.task.started_at && h(Fragment, null, ' for ', h(Since, { at: step.task.started_at })),
      written(step.timeout) && step.task.started_at
        && h(Fragment, null, ', ends ', h(Time, { at: millis(step.task.started_at) + written(step.timeout) * 1000 }))),
    api.can('enqueue') && h(Button, { class: 'small', onClick: () => send(api, run, step.event, again) }, 'Send …'))));
}

function Tasks({ steps, href }) {
  const { order } = layersOf(steps);
  const byKey = new Map(steps.map((step) => [step.key, step]));
  const columns = [
    { key: 'key', title: 'Step', sort: (s) => s.key, render: (s) => h('a', { href: href(s.key) }, s.key) },
    { key: 'status', title: 'Status', sort: (s) => s.status,
      render: (s) => (s.status ? h(Status, { status: s.status }) : faint('not begun')) },
    { key: 'line', title: 'Tasks', class: 'nobr', render: (s) => (s.counts ? s.line : s.job_type ? '1' : faint('–')) },
    { key: 'job_type', title: 'Work', render: (s) => h(Work, { step: s }) },
    {
      key: 'after', title: 'After', class: 'wide opt',
      render: (s) => h(Fragment, null, h(Keys, { keys: s.after, href, none: '–' }),
        s.rule && s.rule !== 'success' && faint(` (${s.rule})`)),
    },
    { key: 'took', title: 'Ran', class: 'n', sort: (s) => spanOf(s.facts), render: (s) => duration(spanOf(s.facts)) },
    { key: 'attempts', title: 'Attempts', class: 'n opt',
      render: (s) => (s.task?.attempts ? num(s.task.attempts) : faint('–')) },
  ];
  return h('details', { class: 'more' }, h('summary', null, `The ${plural(steps.length, 'step')} as a table`),
    h(Table, { rows: order.map((key) => byKey.get(key)), rowKey: (s) => s.key, columns, caption: 'Steps', compact: true }));
}

function Json({ name, value }) {
  return value !== null && value !== undefined && h('details', null, h('summary', null, name),
    h('pre', { class: 'block' }, writeJson(value, 2)));
}

function Run({ route, api, data, again }) {
  const { run } = data;
  const steps = stepsOf(data);
  const href = (step) => link(route.path, { step });
  const selected = steps.find((step) => step.key === route.query.step);
  const path = pathOf(api, steps);
  return h(Fragment, null,
    h(Head, {
      title: h(Fragment, null, run.workflow, ' ', h('span', { class: 'id faint' }, `…${run.id.slice(-8)}`)),
      about: h(Fragment, null, 'Run of ', h('a', { href: link(['workflows', run.workflow]) }, run.workflow),
        `, version ${run.version}, `, h('code', null, run.id)),
    }, h(Actions, { api, run, steps, again })),
    h(Notes, { run }),
    h(Summary, { run }),
    h('section', null,
      h('div', { class: 'section-head' }, h('h2', null, 'Steps'), h(Legend, { steps })),
      h(Events, { api, run, steps, again }),
      steps.length ? h(Diagram, { steps, href, selected: selected?.key, critical: path.keys,
        label: `Graph of ${plural(steps.length, 'step')}` }) : faint('Its version is gone.'),
      h(Late, { api, steps, href }),
      path.keys.length > 1 && h(Critical, { path, steps, run, href })),
    selected && h(Step, { key: selected.key, api, run, step: selected, steps, route, href, again }),
    h('section', null, h(Tasks, { steps, href }), h(Json, { name: 'Payload', value: run.payload }),
      h(Json, { name: 'Result', value: run.result })));
}

/* A run is read again soon while it lives, a great one less often; an ended one seldom: a retry may take it up. */
class Live extends Found {
  componentDidMount() {
    super.componentDidMount();
    this.timer = setInterval(() => this.look(), RENEW_MS);
    this.turned = () => document.visibilityState === 'visible' && this.again();
    document.addEventListener('visibilitychange', this.turned);
  }

  componentWillUnmount() {
    super.componentWillUnmount();
    clearInterval(this.timer);
    document.removeEventListener('visibilitychange', this.turned);
  }

  look() {
    const { data, at, problem } = this.state;
    if (!data) {
      return;
    }
    const soon = data.tasks.length > GREAT ? 3 * RENEW_MS : RENEW_MS;
    const pause = ended.has(data.run.status) ? ENDED_MS : soon;
    /* one that is still on its way is not asked for anew */
    if (!problem && !this.asking && document.visibilityState === 'visible' && Date.now() - at > pause - RENEW_MS / 2) {
      this.asking = true;
      this.again().finally(() => {
        this.asking = false;
      });
    }
  }
}

export default class Screen extends Component {
  render({ route, api }) {
    return h(Live, { api, title: 'Run', path: ['runs', route.id] }, (data, again) => h(Run, { route, api, data, again }));
  }
}
