/*
 * Schedules: the list with next ticks on a time line, and a schedule with its
 * last runs.
 */
import {
  Button, Component, Facts, Fragment, Head, Loading, Status, Time, Trouble, act, ask, duration, h, interval, link, millis,
  now, num, plural,
  refine, seconds, utc,
} from './ui.js';
import { writeJson } from './api.js';
import { Filters, Found, Pages } from './pages.js';
import { Table } from './table.js';

const RENEW_MS = 5000;
const BAND = 80;       /* ticks that a time line draws one by one */
const BACKFILL = 1000; /* jobs, at most, unless another number is given */
const spans = { '1h': 3600, '24h': 86400, '7d': 7 * 86400 };

export const title = (route) => route.id || 'Schedules';

const faint = (text) => h('span', { class: 'faint' }, text);
const at = (s) => ({ path: ['schedules', s.name], query: { tenant: s.tenant } });
const href = (s) => link(at(s).path, at(s).query);

/* The next tick, or why there is none. */
function Next({ schedule: { status, reason, next_tick: tick, last_job_id: job } }) {
  if (status === 'paused') {
    return h('span', { title: reason || undefined }, h(Status, { status }));
  }
  return tick ? h(Time, { at: tick }) : faint(status === 'active' && job ? 'when its job has ended' : status);
}

/* Its ticks depend on the ends of its jobs. */
const isAfter = (s) => /^\s*@?after/i.test(s.cron);

function Cron({ schedule }) {
  return h(Fragment, null, h('code', null, schedule.cron), schedule.timezone !== 'UTC' && faint(` ${schedule.timezone}`));
}

/* ---------- actions ---------- */

function pause(api, s, again) {
  return ask({
    title: `Pause ${s.name}`, submit: 'Pause',
    text: 'Its ticks are gone while it is paused; a backfill enqueues their jobs.',
    fields: [{ name: 'reason', label: 'Reason', type: 'text' },
      { name: 'duration', label: 'For', type: 'interval', placeholder: '2 hours',
        help: 'empty: until somebody resumes it' }],
    run: (values) => api.post(['schedules', s.name, 'pause'], { ...values, tenant: s.tenant ?? undefined }).then(again),
  });
}

function resume(api, s, again) {
  return act(() => api.post(['schedules', s.name, 'resume'], { tenant: s.tenant ?? undefined }).then(again), `${s.name} resumed`);
}

function runNow(api, s, again) {
  return ask({
    title: `Run ${s.name} now`, submit: 'Run now',
    text: 'Enqueues the job of one tick, whatever overlap, pause and max_runs say.',
    fields: [{ name: 'tick', label: 'As of the tick', type: 'time', help: 'UTC; empty: now' }],
    run: (values) => api.post(['schedules', s.name, 'run'], { ...values, tenant: s.tenant ?? undefined }).then((reply) => {
      again();
      return reply;
    }),
  });
}

async function drop(api, s) {
  const done = await ask({
    title: `Drop ${s.name}`, tone: 'danger', submit: 'Drop', type: s.name, text: 'Its jobs stay.',
    run: () => api.del(['schedules', s.name], { tenant: s.tenant }),
  });
  if (done) {
    location.assign(link('schedules'));
  }
}

/*
 * The next n ticks of a schedule after a time. An interval counts from starts_at;
 * next_runs, which knows no schedule, counts from 1970.
 */
async function ticksAfter(api, s, n, since = now()) {
  const from = Math.max(since, s.starts_at ? millis(s.starts_at) - 1 : -Infinity);
  const { items } = await api.get('next_runs', { cron: s.cron, timezone: s.timezone, n, since: new Date(from).toISOString() });
  let ticks = items.map(millis);
  if (s.starts_at && ticks.length > 1 && !s.cron.includes(';') && /^\s*(@?every\b|\d[\d.:]*\s*[a-z])/i.test(s.cron)) {
    const step = ticks[1] - ticks[0];
    const origin = Math.ceil(millis(s.starts_at) / 1000) * 1000;
    ticks = ticks.map((t, i) => origin + (Math.floor((from - origin) / step) + 1 + i) * step);
  }
  return ticks.filter((t) => !s.ends_at || t <= millis(s.ends_at));
}

/* The ticks of a schedule from one time to another, as the backfill counts them. */
async function ticksOf(api, s, since, until, most) {
  const ticks = await ticksAfter(api, s, Math.min(most + 1, 10000), millis(since) - 1);
  return ticks.filter((tick) => tick <= millis(until));
}

/* Asks for a time, counts the ticks, and enqueues their jobs when they are agreed to. */
async function backfill(api, s, again) {
  const found = await ask({
    title: `Backfill ${s.name}`, submit: 'Preview …',
    text: 'Enqueues the jobs of all ticks of that time at once, also of those that have had one.',
    fields: [{ name: 'since', label: 'From', type: 'time', required: true, help: 'UTC' },
      { name: 'until', label: 'To', type: 'time', required: true, help: 'UTC' },
      { name: 'max_runs', label: 'At most', type: 'int', placeholder: String(BACKFILL),
        help: 'jobs; more are refused as a whole' }],
    values: { since: new Date(now() - 86400000).toISOString(), until: new Date(now()).toISOString() },
    run: async (values) => ({ ...values, ticks: await ticksOf(api, s, values.since, values.until,
      values.max_runs ?? BACKFILL) }),
  });
  if (!found) {
    return;
  }
  const { ticks, ...values } = found;
  const most = values.max_runs ?? BACKFILL;
  const done = await ask({
    title: ticks.length > most ? `More than ${num(most)} ticks` : `Enqueue ${plural(ticks.length, 'job')}`,
    submit: 'Enqueue',
    text: ticks.length > most ? 'The server refuses so many; choose a shorter time or a greater maximum.'
      : `Of ${s.job_type}, all at once, the oldest first.`,
    children: h(TickList, { ticks, timezone: s.timezone }),
    run: () => api.post(['schedules', s.name, 'backfill'], { ...values, tenant: s.tenant ?? undefined }),
  });
  if (done) {
    again();
  }
}

function TickList({ ticks, timezone }) {
  const shown = ticks.length > 12 ? [...ticks.slice(0, 6), null, ...ticks.slice(-5)] : ticks;
  return h('ol', { class: 'ticks' },
    shown.map((tick, i) => h('li', { key: tick ?? i }, tick === null ? faint(`… ${num(ticks.length - 11)} more`)
      : local(tick, timezone))));
}

/* "Thu 26 Nov 2026, 09:30:00" in a zone; the exact time in the title. */
function local(tick, timezone = 'UTC') {
  let text;
  try {
    text = new Intl.DateTimeFormat('en-GB', { timeZone: timezone, weekday: 'short', day: 'numeric', month: 'short',
      year: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' })
      .format(millis(tick));
  } catch {
    text = utc(tick);
  }
  return h('time', { dateTime: new Date(millis(tick)).toISOString(), title: utc(tick) }, text);
}

/* ---------- the list ---------- */

/* Hours or days at the head of the time line. */
function Scale({ span }) {
  const parts = span === '1h' ? 4 : span === '24h' ? 4 : 7;
  const begin = now();
  const form = new Intl.DateTimeFormat('en-GB', { timeZone: 'UTC',
    ...(span === '7d' ? { weekday: 'short' } : { hour: '2-digit', minute: '2-digit' }) });
  return h('span', { class: 'line hours', title: 'UTC' }, Array.from({ length: parts }, (_, i) => h('span', {
    key: i, class: 'at', style: { left: `${(100 * i) / parts}%` },
  }, i === 0 ? 'now' : form.format(begin + (spans[span] * 1000 * i) / parts))));
}

/* The ticks that are known: the next one; of "every" those after it, too. */
function knownTicks(s, length) {
  if (!s.next_tick) {
    return [];
  }
  const every = /^\s*@?every\s+(\d+)\s*([smhd])[a-z]*\s*$/i.exec(s.cron);
  const step = every ? every[1] * { s: 1, m: 60, h: 3600, d: 86400 }[every[2].toLowerCase()] * 1000 : 0;
  const first = millis(s.next_tick);
  const n = step ? Math.min(BAND + 1, Math.floor((now() + length - first) / step) + 1) : 1;
  return Array.from({ length: Math.max(1, n) }, (_, i) => first + i * step);
}

/* A mark for each tick; so many that they would touch are a band. */
function Line({ schedule, span, ticks }) {
  const length = spans[span] * 1000;
  const begin = now();
  const asked = (ticks || []).map(millis);
  const last = asked.at(-1);
  const list = (last > begin ? asked : knownTicks(schedule, length))
    .filter((tick) => tick >= begin - 2000 && tick <= begin + length);
  const words = schedule.next_tick ? `next ${utc(schedule.next_tick)}` : 'no next tick';
  const left = (tick) => `${Math.max(0, (100 * (tick - begin)) / length)}%`;
  return h('span', { class: 'line', role: 'img', 'aria-label': words, title: words },
    list.length > BAND || (asked.length > BAND && last > begin && last <= begin + length) ? h('span', { class: 'band', style: { left: left(list[0]) } })
      : list.map((tick) => h('span', { key: tick, class: 'tick', style: { left: left(tick) } })));
}

const ticksKey = (s) => [s.cron, s.timezone, s.starts_at, s.ends_at].join(' ');

class List extends Component {
  constructor(props) {
    super(props);
    this.state = { ticks: {} };
  }

  /* Ticks of cron fields are asked for when all are wanted: one request an expression. */
  async allTicks(items) {
    const wanted = new Map(items.filter((s) => s.status === 'active' && !isAfter(s))
      .map((s) => [ticksKey(s), s]));
    for (const [key, s] of [...wanted].slice(0, 40)) {
      if (!this.state.ticks[key]) {
        try {
          const ticks = await ticksAfter(this.props.api, s, BAND + 1);
          this.setState((state) => ({ ticks: { ...state.ticks, [key]: ticks } }));
        } catch {
          return; /* the line keeps the next tick */
        }
      }
    }
  }

  columns(items, again) {
    const { api, route } = this.props;
    const span = spans[route.query.span] ? route.query.span : '24h';
    return [
      {
        key: 'name', title: 'Schedule', class: 'nobr', sort: (s) => s.name,
        render: (s) => h(Fragment, null, h('a', { href: href(s) }, s.name), s.tenant
          && h(Fragment, null, ' ', h('span', { class: 'kind', title: 'tenant' }, s.tenant))),
      },
      { key: 'cron', title: 'Ticks', class: 'nobr opt', render: (s) => h(Cron, { schedule: s }) },
      { key: 'job_type', title: 'Type', class: 'nobr roomy', sort: (s) => s.job_type,
        render: (s) => h('a', { href: link(['types', s.job_type]) }, s.job_type) },
      { key: 'next_tick', title: 'Next', class: 'nobr', sort: (s) => s.next_tick, render: (s) => h(Next, { schedule: s }) },
      { key: 'line', title: h(Scale, { span }), class: 'timeline opt',
        render: (s) => h(Line, { schedule: s, span, ticks: this.state.ticks[ticksKey(s)] }) },
      { key: 'last_tick', title: 'Last', class: 'nobr', sort: (s) => s.last_tick,
        render: (s) => (s.last_job_id && s.last_tick
          ? h('a', { href: link(['jobs', s.last_job_id]) }, h(Time, { at: s.last_tick })) : h(Time, { at: s.last_tick })) },
      { key: 'runs', title: 'Jobs', class: 'n', sort: (s) => s.runs,
        render: (s) => h('span', { title: s.max_runs ? `at most ${num(s.max_runs)}` : undefined }, num(s.runs)) },
      { key: 'skipped', title: 'Skipped', class: 'n roomy', sort: (s) => s.skipped,
        render: (s) => (s.skipped ? num(s.skipped) : faint('0')) },
      (api.can('enqueue') || api.can('admin')) && {
        key: 'act', title: h('span', { class: 'hidden' }, 'Actions'), class: 'act',
        render: (s) => h(Fragment, null,
          s.status === 'paused' ? h(Button, { class: 'small', icon: 'play', onClick: () => resume(api, s, again),
            title: 'Resume', 'aria-label': `Resume ${s.name}` })
            : h(Button, { class: 'small', icon: 'pause', onClick: () => pause(api, s, again), title: 'Pause',
              'aria-label': `Pause ${s.name}` }), ' ',
          h(Button, { class: 'small', onClick: () => runNow(api, s, again), 'aria-label': `Run ${s.name}` }, 'Run')),
      },
    ].filter(Boolean);
  }

  render({ route, api }) {
    const { search, job_type: type, tenant, status, span = '24h' } = route.query;
    const query = { search, job_type: type, tenant, status };
    const fields = [{ name: 'search', label: 'Name' }, { name: 'job_type', label: 'Job type' },
      { name: 'tenant', label: 'Tenant' },
      { name: 'status', label: 'State', options: [['', 'all'], ['active', 'active'], ['paused', 'paused'],
        ['finished', 'finished']] }];
    return h(Fragment, null,
      h(Head, { title: 'Schedules', about: 'A job at each tick of a cron expression.' },
        (api.can('enqueue') || api.can('admin')) && h('a', { class: 'button', href: link('schedules', { new: 1 }) },
          'New schedule …')),
      h(Filters, { route, fields }),
      h(Pages, { api, path: 'schedules', query, limit: 100, every: RENEW_MS, keyOf: (s) => `${s.tenant} ${s.name}`,
        empty: Object.values(query).some(Boolean) ? 'No schedule matches.'
          : 'No schedule. jobq.schedule() makes one, or New schedule above.' },
      (items, again, rowClass) => h(Fragment, null,
        h('div', { class: 'above' }, h('span', { class: 'chips' }, Object.keys(spans).map((s) => h('a', {
          key: s, href: link(route.path, { ...route.query, span: s }), 'aria-current': s === span ? 'true' : undefined,
        }, `next ${s.replace('h', ' h').replace('d', ' days')}`))),
          h(Button, { class: 'small quiet', onClick: () => this.allTicks(items) }, 'Draw all ticks')),
        h(Table, { rows: items, rowKey: (s) => `${s.tenant} ${s.name}`, columns: this.columns(items, again),
          caption: 'Schedules', rowClass, href }))));
  }
}

/* ---------- a schedule ---------- */

const tickOf = (job) => job.metadata?.tick ?? job.scheduled_for;

/* Seconds from the tick to the start; a later attempt's start says nothing of that. */
function lateness(job) {
  const begun = job.attempts > 1 ? job.created_at : job.started_at;
  return begun ? Math.max(0, (millis(begun) - Math.max(millis(tickOf(job)), 0)) / 1000) : null;
}

/* Last runs and next ticks on one line, now in the middle. */
function Ribbon({ runs, ticks, timezone }) {
  const present = now();
  const next = ticks.map(millis);
  const span = Math.max(60000, (next[Math.min(next.length - 1, 11)] ?? present + 3600000) - present);
  const x = (time) => 50 + (50 * (time - present)) / span;
  const past = runs.filter((job) => x(millis(tickOf(job))) >= 0.5);
  const label = `${plural(past.length, 'run')} in the last ${duration(span / 1000)}, ${plural(next.filter((t) => x(t) <= 100).length, 'tick')} in the next`;
  return h('div', { class: 'ribbon', role: 'img', 'aria-label': label },
    h('span', { class: 'axis' }), h('span', { class: 'present' }, 'now'),
    h('span', { class: 'end' }, `−${duration(span / 1000)}`),
    h('span', { class: 'end right' }, `+${duration(span / 1000)}`),
    past.map((job) => h('span', { key: job.id, class: `run ${job.status}`, style: { left: `${x(millis(tickOf(job)))}%` },
      title: `${utc(tickOf(job))}: ${job.status}` })),
    next.filter((t) => x(t) <= 99.5).map((t) => h('span',
      { key: t, class: 'tick', style: { left: `${x(t)}%` },
        title: `${utc(t)}${timezone === 'UTC' ? '' : `, ${timezone}`}` })));
}

const runColumns = [
  { key: 'tick', title: 'Tick', class: 'nobr', render: (j) => h('span', { title: utc(tickOf(j)) },
    h(Time, { at: tickOf(j) })) },
  { key: 'status', title: 'Outcome', render: (j) => h(Status, { status: j.status }) },
  { key: 'late', title: 'Late', class: 'n', render: (j) => duration(lateness(j)) },
  { key: 'took', title: 'Ran', class: 'n', render: (j) => (j.started_at && j.completed_at
    ? duration((millis(j.completed_at) - millis(j.started_at)) / 1000) : faint('–')) },
  { key: 'attempts', title: 'Attempts', class: 'n opt' },
  { key: 'error_msg', title: 'Error', class: 'brief', render: (j) => j.error_msg || '' },
  { key: 'id', title: 'Job', class: 'nobr', render: (j) => h('a', { href: link(['jobs', j.id]), class: 'id', title: j.id },
    `…${j.id.slice(-8)}`) },
];

/* Runs and next ticks: both are drawn on one line. */
class Times extends Component {
  constructor(props) {
    super(props);
    this.state = { ticks: [], problem: null };
  }

  componentDidMount() {
    this.look();
  }

  componentDidUpdate(before) {
    if (before.schedule.next_tick !== this.props.schedule.next_tick) {
      this.look();
    }
  }

  async look() {
    const { api, schedule: s } = this.props;
    if (s.status !== 'active' || isAfter(s)) {
      this.setState({ ticks: s.next_tick ? [s.next_tick] : [] });
      return;
    }
    try {
      this.setState({ ticks: await ticksAfter(api, s, 24, s.next_tick ? millis(s.next_tick) - 1 : now()), problem: null });
    } catch (problem) {
      this.setState({ problem });
    }
  }

  render({ api, schedule: s }, { ticks, problem }) {
    return h(Pages, { api, path: ['schedules', s.name, 'runs'], query: { tenant: s.tenant }, limit: 50, every: RENEW_MS },
      (runs, again, rowClass) => h(Fragment, null,
      h('section', null, h('h2', null, 'Last runs and next ticks'),
        problem && h(Trouble, { problem }),
        h(Ribbon, { runs, ticks, timezone: s.timezone }),
        ticks.length > 0 && h('details', { open: ticks.length < 3 },
          h('summary', null, `The next ${plural(Math.min(ticks.length, 10), 'tick')}`, s.timezone === 'UTC' ? ''
            : `, ${s.timezone}`),
          h('ol', { class: 'ticks' }, ticks.slice(0,
            10).map((t) => h('li', { key: t }, local(t, s.timezone), faint(h(Fragment, null, ' ', h(Time, { at: t })))))))),
      h('section', null, h('h2', null, 'Last runs'),
        runs.length ? h(Table, { rows: runs, columns: runColumns, caption: 'Last runs', compact: true, rowClass,
          href: (j) => link(['jobs', j.id]) })
          : faint('None yet.'))));
  }
}

function Definition({ schedule: s }) {
  const catchUp = s.catch_up === 'all' ? `all, at most ${num(s.catch_up_limit)}` : s.catch_up;
  return h('div', { class: 'short' }, h(Facts, {
    rows: [
      ['Job type', h('a', { href: link(['types', s.job_type]) }, s.job_type)], ['Owner', s.owner], ['Overlap', s.overlap],
      ['Missed ticks', catchUp],
      ['Jitter', seconds(s.jitter) ? interval(s.jitter) : null], ['From', s.starts_at && h(Time, { at: s.starts_at })],
      ['Until', s.ends_at && h(Time, { at: s.ends_at })],
      ['Jobs', s.max_runs ? `${num(s.runs)} of at most ${num(s.max_runs)}` : num(s.runs)],
      ['Skipped ticks', num(s.skipped)],
      ['Paused after', s.pause_after_failures && plural(s.pause_after_failures, 'dead letter')],
      ['Payload', h('code', null, writeJson(s.payload))],
      ['Options', Object.keys(s.options).length > 0 && h('code', null, writeJson(s.options))],
      ['Changed', h(Time, { at: s.updated_at })],
    ],
  }));
}

function Paused({ schedule: s }) {
  return s.status === 'paused' && h('div', { class: 'note warn' }, h(Status, { status: 'paused' }),
    h('span', null, s.reason || 'without a reason',
    s.paused_until && h(Fragment, null, ', ends ', h(Time, { at: s.paused_until }))));
}

function Actions({ api, schedule: s, route, again }) {
  const may = api.can('enqueue') || api.can('admin');
  return may && h(Fragment, null,
    h(Button, { icon: 'play', onClick: () => runNow(api, s, again) }, 'Run now …'),
    !isAfter(s) && h(Button, { onClick: () => backfill(api, s, again) }, 'Backfill …'),
    s.status === 'paused' ? h(Button, { icon: 'play', onClick: () => resume(api, s, again) }, 'Resume')
      : h(Button, { icon: 'pause', onClick: () => pause(api, s, again) }, 'Pause …'),
    h('a', { class: 'button', href: link(route.path, { ...route.query, edit: 1 }) }, 'Change …'),
    h(Button, { class: 'danger', onClick: () => drop(api, s) }, 'Drop …'));
}

function Schedule({ route, api }) {
  const { tenant, edit } = route.query;
  return h(Found, { api, title: route.id, path: ['schedules', route.id], query: { tenant }, every: edit ? 0 : RENEW_MS },
    (s, again) => h(Fragment, null,
    h(Head, { title: s.name, about: h(Fragment, null, h(Cron, { schedule: s }), s.tenant && `, tenant ${s.tenant}`,
      s.next_tick && h(Fragment, null, ', next ', h(Time, { at: s.next_tick }))) },
      !edit && h(Actions, { api, schedule: s, route, again })),
    h(Paused, { schedule: s }),
    edit ? h(Edit, { api, schedule: s, done: () => refine(route, { edit: '' }) })
      : h(Fragment, null, h(Times, { api, schedule: s }),
        h('section', null, h('h2', null, 'Definition'), h(Definition, { schedule: s })))));
}

/* The form is loaded when it is first opened. */
class Edit extends Component {
  async componentDidMount() {
    this.setState({ module: await import('./schedule_form.js') });
  }

  render(props, { module }) {
    return module ? h(module.default, { ...props, local }) : h(Loading);
  }
}

export default class Screen extends Component {
  render({ route, api }) {
    if (route.id) {
      return h(Schedule, { route, api });
    }
    if (route.query.new) {
      return h(Fragment, null, h(Head, { title: 'New schedule' }),
        h(Edit, { api, done: () => location.assign(link('schedules')) }));
    }
    return h(List, { route, api });
  }
}
