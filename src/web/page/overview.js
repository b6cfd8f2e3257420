/*
 * The overview: what is wrong, why, and what to do about it.
 *
 * The verdict and the types are api.live, so the page is usable with the first
 * overview. What is read after that: plots (trends.js), errors, workers,
 * lanes and resources. The order of types holds still while the pointer or
 * the focus is in their table.
 */
import { act, ask, Badge, Bar, Button, bytes, Component, Duration, duration, Empty, Facts, Fragment, h, Head, likeOf, link, Loading, num, percent,
  Searched, short, Since, Status, Time, Trouble, now, millis } from './ui.js';
import { Table } from './table.js';

export const title = 'Overview';

const RATE_S = 20;
const ERRORS_MS = 15000;
const SLOW_MS = 5000;

/* ---------- numbers of types ---------- */

export function ended(t) {
  return t.completed + t.skipped;
}

export function failures(t) {
  return Object.values(t.failures || {}).reduce((sum, n) => sum + n, 0);
}

function grows(t) {
  return t.due > 0 && (t.paused || t.drain_s === null);
}

/* Jobs of the last seconds are no trouble. */
function troubled(t) {
  return grows(t) && t.oldest_due_s >= 10;
}

/* Types with trouble first, in the order of jobq-top. */
function byTrouble(a, b) {
  return troubled(b) - troubled(a) || (b.oldest_due_s ?? -1) - (a.oldest_due_s ?? -1) || b.due - a.due ||
    millis(b.last_failed ?? 0) - millis(a.last_failed ?? 0) || b.dead - a.dead || (a.job_type ?? '').localeCompare(b.job_type ?? '');
}

/* Upper bounds of the buckets of waits, in seconds; one more is for all above. */
const BOUNDS = [0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 7200];

/* The wait that a share q of the jobs did not exceed, in seconds; null: no job. */
export function quantile(buckets, q) {
  const all = buckets.reduce((sum, n) => sum + n, 0);
  let left = all * q;
  for (let i = 0; all > 0 && i < buckets.length; i++) {
    if (left <= buckets[i]) {
      const from = i === 0 ? 0 : BOUNDS[i - 1];
      return i < BOUNDS.length ? from + (BOUNDS[i] - from) * (left / buckets[i]) : from;
    }
    left -= buckets[i];
  }
  return null;
}

/* Sums that are not known are NaN: a role of some tenants has only counts by status. */
function sums(types) {
  const sum = { wait: [], due: 0, exact: true, waiting: 0, blocked: 0, retry: 0, running: 0, dead: 0, enqueued: 0, ended: 0, failed: 0 };
  for (const t of types) {
    sum.due += t.due;
    sum.exact &&= t.due_exact !== false;
    sum.waiting += t.pending ?? 0;
    sum.blocked += t.blocked ?? 0;
    sum.retry += t.retry ?? 0;
    sum.running += t.running ?? 0;
    sum.dead += t.dead ?? 0;
    sum.enqueued += t.enqueued;
    sum.ended += ended(t);
    sum.failed += failures(t);
    (t.wait_buckets || []).forEach((n, i) => {
      sum.wait[i] = (sum.wait[i] || 0) + n;
    });
  }
  return sum;
}

/* ---------- the verdict ---------- */

const names = {
  dispatcher: 'Dispatcher', workers: 'Workers', slots: 'Worker slots', helper: 'Tools', queues: 'Queues', breakers: 'Breakers',
  signals: 'Pressure signals', schedules: 'Schedules', retention: 'Retention', dead_letters: 'Dead letters', disk: 'Disk', partitions: 'Partitions', horizon: 'Horizon',
  notify_queue: 'Notify queue', identity: 'Identity', access: 'Access',
};

/* Where the cause of a check is seen or changed. */
const places = {
  dead_letters: ['dead', 'Dead letters by error'], breakers: ['types', 'Job types'], signals: ['rules', 'Signals and rules'],
  helper: ['types', 'Job types'], schedules: ['schedules', 'Schedules'],
};

function resume(api, type) {
  act(() => api.post(['types', type, 'resume']), `${type} runs again`);
}

export function askPause(api, type) {
  return ask({
    title: `Pause ${type}`, text: 'Jobs that run go on; no other job of the type starts until it is resumed.', submit: 'Pause',
    fields: [
      { name: 'reason', label: 'Reason', help: 'shown with the type' },
      { name: 'duration', label: 'For', type: 'interval', placeholder: '30 min', help: 'empty: until it is resumed' },
    ],
    run: (values) => api.post(['types', type, 'pause'], values),
  });
}

function start(api) {
  act(() => api.post('start'), 'Jobs start again');
}

function askStop(api, session) {
  return ask({
    title: 'Stop all jobs', tone: 'danger', submit: 'Stop all jobs', type: session.database,
    text: 'No job of this database starts until jobs are started again. Jobs that run go on; new ones are accepted.',
    fields: [{ name: 'reason', label: 'Reason', required: true, help: 'shown here and in health()' }],
    run: (values) => api.post('stop', values),
  });
}

function Levers({ name, check, api }) {
  const may = api.can('configure');
  const place = places[name];
  return h('span', { class: 'row levers' },
    may && check.stopped && h(Button, { class: 'small', icon: 'play', onClick: () => start(api) }, 'Start'),
    may && check.paused_types?.slice(0, 5).map((type) => h(Button, { key: type, class: 'small', icon: 'play', onClick: () => resume(api, type) }, `Resume ${type}`)),
    check.dead_parents?.slice(0, 5).map((id) => h('a', { key: id, href: link(['jobs', id]) }, `dead letter ${id.slice(0, 8)}…`)),
    place && h('a', { href: link(place[0]) }, place[1]));
}

/* Where what holds jobs back is seen or changed. */
const holders = {
  limit: 'limits', shared_limit: 'limits', rate: 'limits', weight: 'limits', tenant_turn: 'tenants', signal: 'rules', breaker: 'types', type_paused: 'types',
};
const kinds = { shared_limit: ['limit', 'limit_rate', 'run_limit', 'run_limit_rate'], rate: ['type_rate', 'limit_rate', 'run_limit_rate'], limit: ['job_type'], weight: ['weight'], tenant_turn: ['tenant'] };

/*
 * What has held due jobs back for 10 seconds, most jobs first: {code, due, exact, types, oldest, full}, where
 * full are the rows of limits/usage that are it.  A job of the last seconds is no trouble.
 */
function heldBack(types, lanes, usage) {
  const due = new Map(types.map((t) => [t.job_type, t]));
  const groups = new Map();
  for (const lane of lanes) {
    const type = due.get(lane.job_type);
    if (!lane.held_by || !type?.due || now() - millis(lane.oldest_due) < 10000) {
      continue;
    }
    const group = groups.get(lane.held_by) || { code: lane.held_by, types: [], oldest: Infinity, due: 0, exact: true };
    groups.set(lane.held_by, group);
    group.oldest = Math.min(group.oldest, millis(lane.oldest_due));
    if (!group.types.includes(lane.job_type)) {
      group.types.push(lane.job_type);
      group.due += type.due;
      group.exact &&= type.due_exact !== false;
    }
  }
  return [...groups.values()].sort((a, b) => b.due - a.due).slice(0, 4).map((group) => ({ ...group,
    full: usage.filter((u) => u.held_s && kinds[group.code]?.includes(u.kind) && (!/type/.test(u.kind) || group.types.includes(u.name))) }));
}

function Held({ groups }) {
  return groups.length > 0 && h('ul', { class: 'causes', 'aria-label': 'What jobs wait for' }, groups.map((g) => h('li', { key: g.code },
    h(Badge, { icon: 'lock' }, `${short(g.due)}${g.exact ? '' : '+'} due`),
    h('span', { class: 'message' }, stands[g.code] || `wait for ${(holds[g.code] || g.code).replace(/^its /, 'their ')}`,
      g.full.length > 0 && h('span', null, ': ', g.full.slice(0, 3).map((u) => `${u.name ?? 'all jobs'} ${num(u.used)} of ${num(u.max)}`).join(', ')),
      h('span', { class: 'faint' }, ', the oldest for ', h(Since, { at: g.oldest }))),
    h('span', { class: 'row levers' }, g.types.slice(0, 3).map((type) => h('a', { key: type, href: link('jobs', { job_type: type }) }, type)),
      g.types.length > 3 && h('span', { class: 'faint' }, `and ${g.types.length - 3} more`),
      holders[g.code] && h('a', { href: link(holders[g.code]) }, { limits: 'Limits', tenants: 'Tenants', rules: 'Signals and rules', types: 'Job types' }[holders[g.code]])))));
}

const verdicts = {
  healthy: 'Everything works', degraded: 'The queue works, with trouble', unhealthy: 'The queue does not work as it should',
};

function Verdict({ health, api, held }) {
  const checks = Object.entries(health.checks);
  const rank = { unhealthy: 0, degraded: 1, healthy: 2 };
  const bad = checks.filter(([, c]) => c.status !== 'healthy').sort(([, a], [, b]) => rank[a.status] - rank[b.status]);
  const good = checks.filter(([, c]) => c.status === 'healthy');
  return h('section', { class: `verdict ${health.status}`, 'aria-label': 'Verdict' },
    h('p', { class: 'words', role: 'status' }, h(Status, { status: health.status }), h('strong', null, verdicts[health.status]),
      h('span', { class: 'faint' }, bad.length ? `${good.length} of ${checks.length} checks are healthy` : `all ${checks.length} checks are healthy`)),
    bad.length > 0 && h('ul', { class: 'causes' }, bad.map(([name, check]) => h('li', { key: name },
      h(Status, { status: check.status }, names[name] || name),
      h('span', { class: 'message' }, check.message, check.since && h('span', { class: 'faint' }, ', for ', h(Since, { at: millis(check.since) }))),
      h(Levers, { name, check, api })))),
    h(Held, { groups: held }));
}

/* ---------- the numbers of now ---------- */

function Tile({ name, value, unit, tone, href, about }) {
  const text = h('span', { class: `value ${tone || ''}` }, value, unit && h('span', { class: 'unit' }, unit));
  return h('div', { class: 'tile', title: about }, h('dt', null, name), h('dd', null, href ? h('a', { href }, text) : text));
}

function Tiles({ sum, rates }) {
  const rate = (n) => (rates ? short(n) : '–');
  return h('dl', { class: 'tiles' },
    h(Tile, { name: 'In', value: rate(rates?.in), unit: '/s', about: 'jobs enqueued, the last 20 seconds' }),
    h(Tile, { name: 'Out', value: rate(rates?.out), unit: '/s', about: 'jobs completed or skipped, the last 20 seconds' }),
    h(Tile, { name: 'Failing', value: rates ? percent(rates.failed, rates.failed + rates.ended) : '–', tone: rates?.failed > (rates?.failed + rates?.ended) / 10 ? 'bad' : '',
      about: 'attempts that failed, of those that ended in the last 20 seconds' }),
    h(Tile, { name: 'Wait p95', value: rates ? duration(rates.p95) : '–', about: '95% of the jobs that started in the last 20 seconds had been due for at most so long' }),
    h(Tile, { name: 'Due', value: Number.isNaN(sum.due) ? '–' : `${short(sum.due)}${sum.exact ? '' : '+'}`,
      about: Number.isNaN(sum.due) ? 'needs access read of all tenants' : `${num(sum.due)} jobs could start now`, href: link('jobs', { status: 'pending' }) }),
    h(Tile, { name: 'Waiting', value: short(sum.waiting + sum.retry + sum.blocked), href: link('jobs', { status: 'pending' }),
      about: `${num(sum.waiting)} pending, ${num(sum.retry)} wait for a retry, ${num(sum.blocked)} blocked` }),
    h(Tile, { name: 'Running', value: short(sum.running), href: link('jobs', { status: 'running' }) }),
    h(Tile, { name: 'Dead', value: short(sum.dead), tone: sum.dead ? 'bad' : '', about: 'dead letters', href: link('dead') }));
}

/* ---------- job types ---------- */

/* Why jobs of a lane wait: codes of jobq.why. */
const holds = {
  limit: 'its limit', shared_limit: 'a shared limit', rate: 'its rate', type_paused: 'paused', breaker: 'its breaker',
  stopped: 'all stopped', slots: 'a free worker', no_worker: 'a claim of a client',
  weight: 'weight', key: 'concurrency keys', tenant_turn: 'tenants at their maximum', signal: 'a pressure signal', filter: 'the type filter',
  role: 'its role', node: 'a node', helper: 'its tool', dispatcher: 'the dispatcher', identity: 'adopt()', behind: 'its turn',
};

/* The codes that jobs do not wait for: what they are. */
const stands = { type_paused: 'are paused', stopped: 'are stopped' };

function Drain({ t }) {
  return grows(t) ? h('span', { class: troubled(t) ? 'bad' : 'faint' }, t.paused ? 'paused' : 'grows') : t.due > 0 ? h(Duration, { s: t.drain_s }) : h('span', { class: 'faint' }, '–');
}

class Types extends Component {
  constructor(props) {
    super(props);
    this.state = { held: false };
    this.order = [];
  }

  sorted() {
    const rows = this.props.types.filter((t) => t.job_type !== null);
    if ((this.state.pointed || this.state.focused) && this.order.length) {
      const place = new Map(this.order.map((name, i) => [name, i]));
      rows.sort((a, b) => (place.get(a.job_type) ?? 1e9) - (place.get(b.job_type) ?? 1e9));
    } else {
      rows.sort(byTrouble);
    }
    this.order = rows.map((t) => t.job_type);
    return rows;
  }

  columns() {
    const { maxima, lanes, api } = this.props;
    const max = (t) => maxima.get(t.job_type);
    return [
      { key: 'job_type', title: 'Type', class: 'name', sort: (t) => t.job_type, render: (t) => h('a', { href: link('jobs', { job_type: t.job_type }) }, t.job_type) },
      { key: 'due', title: 'Due', class: 'n', sort: (t) => t.due, render: (t) => h('span', { title: `${num(t.due)} due, ${num(t.pending)} pending, ${num(t.retry)} wait for a retry` }, short(t.due), t.due_exact === false && t.due > 0 ? '+' : '') },
      { key: 'running', title: 'Run', class: 'n', sort: (t) => t.running, render: (t) => h('span', { class: max(t) && t.running >= max(t) ? 'warn' : '' }, num(t.running), max(t) ? `/${num(max(t))}` : '') },
      { key: 'fail', title: 'Fail', class: 'n', sort: (t) => failures(t) / (failures(t) + ended(t) || 1),
        render: (t) => h('span', { class: failures(t) ? '' : 'faint', title: `${num(failures(t))} of ${num(failures(t) + ended(t))} attempts since ${t.stats_reset}` }, percent(failures(t), failures(t) + ended(t))) },
      { key: 'dead', title: 'Dead', class: 'n', sort: (t) => t.dead, render: (t) => (t.dead ? h('a', { class: 'bad', href: link('dead', { job_type: t.job_type }) }, short(t.dead)) : h('span', { class: 'faint' }, '0')) },
      { key: 'oldest', title: 'Oldest', class: 'n', sort: (t) => t.oldest_due_s, render: (t) => (t.oldest_due_s === null ? h('span', { class: 'faint' }, '–') : h(Duration, { s: t.oldest_due_s })) },
      { key: 'drain', title: 'Drained in', class: 'n', sort: (t) => (grows(t) ? Infinity : t.drain_s), render: (t) => h(Drain, { t }) },
      { key: 'held', title: 'Waits for', class: 'opt', render: (t) => (t.paused ? h(Status, { status: 'paused' }) : t.due > 0 && lanes.get(t.job_type) ? holds[lanes.get(t.job_type)] || lanes.get(t.job_type) : '') },
      api.can('configure') && { key: 'act', title: h('span', { class: 'hidden' }, 'Actions'), class: 'act', render: (t) => (t.paused
        ? h(Button, { class: 'small', icon: 'play', 'aria-label': `Resume ${t.job_type}`, onClick: () => resume(api, t.job_type) }, 'Resume')
        : h(Button, { class: 'small quiet', icon: 'pause', 'aria-label': `Pause ${t.job_type}`, onClick: () => askPause(api, t.job_type) }, 'Pause')) },
    ].filter(Boolean);
  }

  render({ types }) {
    if (!types.length) {
      return h(Empty, null, h('p', null, 'There is no job type yet.'), h('p', null, 'jobq.create_job_type() or ', h('a', { href: link('types') }, 'Types'), ' makes one.'));
    }
    const hold = (what, held) => () => this.setState({ [what]: held });
    return h('div', { onPointerEnter: hold('pointed', true), onPointerLeave: hold('pointed', false), onFocusIn: hold('focused', true), onFocusOut: hold('focused', false) },
      h(Table, { rows: this.sorted(), rowKey: (t) => t.job_type, columns: this.columns(), caption: 'Job types', href: (t) => link('jobs', { job_type: t.job_type }) }));
  }
}

/* ---------- errors, running jobs, workers, machine ---------- */

/* What is read again and again, in one of the states. */
function Part({ state, children, none }) {
  if (!state?.data) {
    return state?.problem ? h(Trouble, { problem: state.problem }) : h(Loading);
  }
  return h(Fragment, null, state.problem && !state.problem.passing && h(Trouble, { problem: state.problem }),
    children(state.data) || h(Empty, null, none));
}

function Errors({ state }) {
  const columns = [
    { key: 'n', title: 'Jobs', class: 'n', render: (g) => h('a', { href: link('jobs', { job_type: g.job_type, error: likeOf(g.pattern) }) }, num(g.n)) },
    { key: 'pattern', title: 'Error', class: 'text', render: (g) => h('a', { href: link(['jobs', g.job_id]), title: g.pattern }, g.pattern ?? 'no message') },
    { key: 'job_type', title: 'Type', class: 'opt cut', render: (g) => h('span', { title: g.job_type }, g.job_type) },
    { key: 'last', title: 'Last', class: 'nobr', render: (g) => h(Time, { at: g.last }) },
  ];
  return h(Part, { state, none: state?.data?.searched_to ? h(Searched, { at: state.data.searched_to }) : 'No dead letter and no retry waits.', children: ({ items }) => items.length > 0 && h(Table, {
    rows: items.slice(0, 8), columns, rowKey: (g) => `${g.job_type} ${g.error_code} ${g.pattern}`, caption: 'Top errors', compact: true,
    href: (g) => link(['jobs', g.job_id]),
  }) });
}

function Longest({ state }) {
  const used = (w) => (w.deadline ? (now() - millis(w.started_at)) / (millis(w.deadline) - millis(w.started_at)) : null);
  const columns = [
    { key: 'job_type', title: 'Type', render: (w) => h('a', { href: link(['jobs', w.job_id]) }, w.job_type) },
    { key: 'for', title: 'Runs for', class: 'n', render: (w) => h(Since, { at: w.started_at }) },
    { key: 'deadline', title: 'Timeout', class: 'nobr', render: (w) => (w.deadline ? h('span', null, h(Bar, { used: used(w), max: 1, title: `${Math.round(used(w) * 100)}% of its time` }), ' ', h(Time, { at: w.deadline })) : h('span', { class: 'faint' }, 'none')) },
    { key: 'worker', title: 'Worker', class: 'nobr opt' },
  ];
  return h(Part, { state, none: 'No job runs.', children: ({ items }) => {
    const rows = items.filter((w) => w.job_id).sort((a, b) => millis(a.started_at) - millis(b.started_at)).slice(0, 8);
    return rows.length > 0 && h(Table, { rows, columns, rowKey: (w) => w.job_id, caption: 'Longest running jobs', compact: true, href: (w) => link(['jobs', w.job_id]) });
  } });
}

function workersOf(items) {
  const kinds = {};
  for (const w of items) {
    const kind = kinds[w.kind] ??= { busy: 0, idle: 0 };
    kind[w.job_id ? 'busy' : 'idle']++;
  }
  return Object.entries(kinds);
}

/* Read when it is opened. */
class Readings extends Component {
  async open(event) {
    if (event.currentTarget.open && !this.state.Disk) {
      const { Disk } = await import('./disk.js');
      this.setState({ Disk });
    }
  }

  render({ api }, { Disk }) {
    return h('details', { class: 'more', onToggle: (event) => this.open(event) }, h('summary', null, 'Readings of the disk'), Disk && h(Disk, { api }));
  }
}

function Machine({ api, health, workers, resources }) {
  const { disk, horizon, slots, dispatcher, notify_queue: notify } = health.checks;
  const r = resources?.data;
  const kinds = workers?.data && workersOf(workers.data.items);
  return h('div', { class: 'panel' }, h(Facts, { rows: [
    ['Workers', kinds && (kinds.length ? kinds.map(([kind, n]) => h('div', { key: kind }, kind, ': ', h('b', null, n.busy), ' busy, ', h('b', null, n.idle), ' idle')) : 'none')],
    ['Worker slots', slots?.max && h(Fragment, null, `${slots.used} of ${slots.max} `, h(Bar, { used: slots.used, max: slots.max }))],
    ['Weight', r?.weight?.max && h(Fragment, null, `${num(r.weight.used ?? 0)} of ${num(r.weight.max)} `, h(Bar, { used: r.weight.used ?? 0, max: r.weight.max }))],
    ['Dispatcher', dispatcher?.latency_ms !== undefined && `answers in ${duration(dispatcher.latency_ms / 1000)}`],
    ['Disk', r?.disk?.file_systems?.length ? r.disk.file_systems.map((f) => h('div', { key: f.path }, h('span', { title: `${f.path}: ${bytes(f.used_bytes)} of ${bytes(f.total_bytes)}` }, `${Math.round(f.percent)}% `, h(Bar, { used: f.percent, max: 100 }), ' of ', bytes(f.total_bytes))))
      : disk?.percent !== undefined && disk.percent !== null && `${Math.round(disk.percent)}%`],
    ['Horizon', horizon?.held_s !== undefined && h('span', { title: horizon.holder }, duration(horizon.held_s), horizon.held_s > 60 && horizon.holder ? h('div', { class: 'faint' }, horizon.holder) : '')],
    ['Queue table', horizon?.queue_bytes > 0 && `${bytes(horizon.queue_bytes)}, ${bytes(horizon.dead_bytes)} of it dead rows`],
    ['Notify queue', notify?.usage > 0 && `${Math.round(notify.usage * 100)}% full`],
    ['Signals', r?.signals?.length > 0 && r.signals.filter((s) => s.active !== false).map((s) => h(Badge, { key: s.name, tone: 'warn', icon: 'warn' }, s.name))],
  ] }), h(Readings, { api }));
}

/* ---------- the screen ---------- */

export default class Overview extends Component {
  constructor(props) {
    super(props);
    this.state = { live: props.api.live.state, trends: null };
    this.past = [];
  }

  componentDidMount() {
    const { api } = this.props;
    this.watchers = [];
    this.end = api.live.follow((live) => {
      if (live.data && live.data !== this.state.live.data) {
        this.past = [...this.past.filter((p) => Math.abs(live.at - p.at) < RATE_S * 1000), { at: live.at, ...sums(live.data.types) }];
      }
      this.setState({ live });
      if (live.data && !this.later) {
        this.later = requestAnimationFrame(() => setTimeout(() => this.readRest()));
      }
    });
  }

  componentWillUnmount() {
    this.gone = true;
    this.end();
    this.watchers.forEach((w) => w.stop());
  }

  /* After the first paint. */
  async readRest() {
    if (this.gone) {
      return;
    }
    performance.mark('usable');
    const { api } = this.props;
    const read = (key, path, every, query) => this.watchers.push(api.watch(path, query, every, (state) => this.setState({ [key]: state })));
    import('./trends.js').then((trends) => this.setState({ trends: trends.Trends }), (problem) => console.error(problem));
    read('workers', 'workers', SLOW_MS);
    read('lanes', 'lanes', SLOW_MS);
    read('usage', 'limits/usage', SLOW_MS);
    read('errors', 'errors', ERRORS_MS, { max_rows: 8 });
    read('resources', '../../admin/resources', ERRORS_MS);
  }

  rates() {
    const [first, last] = [this.past[0], this.past[this.past.length - 1]];
    const s = first && (last.at - first.at) / 1000;
    if (!s || s < 1.5 || !(last.enqueued >= first.enqueued)) {
      return null;
    }
    return {
      in: (last.enqueued - first.enqueued) / s, out: (last.ended - first.ended) / s, ended: last.ended - first.ended, failed: last.failed - first.failed,
      p95: quantile(last.wait.map((n, i) => n - (first.wait[i] || 0)), 0.95),
    };
  }

  body(data) {
    const { api } = this.props;
    const { trends: Trends, workers, lanes, errors, resources, usage } = this.state;
    const maxima = new Map((resources?.data?.rules || []).map((r) => [r.job_type, r.max_concurrent]));
    const held = new Map();
    for (const lane of lanes?.data?.items || []) {
      if (lane.held_by && !held.has(lane.job_type)) {
        held.set(lane.job_type, lane.held_by);
      }
    }
    return h(Fragment, null,
      h(Verdict, { health: data.health, api, held: heldBack(data.types, lanes?.data?.items || [], usage?.data?.items || []) }),
      h(Tiles, { sum: sums(data.types), rates: this.rates() }),
      h('section', { class: 'trends', 'aria-label': 'Plots' }, Trends && h(Trends, { api })),
      h('section', null, h('div', { class: 'section-head' }, h('h2', null, 'Job types'), h('span', { class: 'faint' }, 'trouble first')),
        h(Types, { types: data.types, maxima, lanes: held, api })),
      h('div', { class: 'grid wide-grid' },
        h('section', null, h('div', { class: 'section-head' }, h('h2', null, 'Top errors'), h('a', { href: link('dead') }, 'Dead letters')), h(Errors, { state: errors })),
        h('section', null, h('div', { class: 'section-head' }, h('h2', null, 'Longest running'), h('a', { href: link('jobs', { status: 'running' }) }, 'All running')), h(Longest, { state: workers }))),
      h('section', null, h('h2', null, 'Workers and machine'), h(Machine, { api, health: data.health, workers, resources })));
  }

  render({ api, session }, { live }) {
    const stopped = live.data?.health.checks.queues?.stopped;
    return h(Fragment, null,
      h(Head, { title }, live.data && api.can('configure') && (stopped
        ? h(Button, { class: 'primary', icon: 'play', onClick: () => start(api) }, 'Start jobs')
        : h(Button, { class: 'danger', icon: 'stop', onClick: () => askStop(api, session) }, 'Stop all jobs'))),
      live.data ? this.body(live.data)
        : live.problem ? h(Trouble, { problem: live.problem, again: () => api.live.again() },) : h(Loading),
      !live.data && live.problem?.status === 403 && h(Empty, null, 'The overview is of all tenants. Your role sees ', h('a', { href: link('jobs') }, 'jobs'), ' and ', h('a', { href: link('dead') }, 'dead letters'), ' of its own.'));
  }
}
