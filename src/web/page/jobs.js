/*
 * The list of jobs: filters in the fragment, pages by key, selection, bulk.
 *
 * The newest page is read again when jobs change. Rows that are shown are
 * refreshed in place; new ones are announced, and shown on click; rows that
 * the filter does not match any more stay, faint, until then.
 */
import { act, ask, Button, Component, Duration, Empty, Fragment, h, Head, Icon, link, Loading, millis, now, num, plural, problemText, refine, say, Since, Stale, Status,
  Time, Trouble, Typed } from './ui.js';
import { readJson, writeJson } from './api.js';
import { NewRows, Table } from './table.js';

export const title = 'Jobs';

const PAGE = 100;
const REFRESH_MS = 3000;
const PULSE_MS = 10000;
/*
 * A list is read again by itself after so many times the time that it takes.
 * The server searches for a second, then says how far it has come.
 */
const REST = 10;
const PER_SECOND = 30;

const STATUSES = ['pending', 'blocked', 'retry', 'running', 'completed', 'skipped', 'cancelled', 'error'];
const LIVE = ['pending', 'blocked', 'retry', 'running'];

/* ---------- the filter ---------- */

/* the browser takes "5" for a month */
const DATE = /^[+-]?\d{4,6}-\d\d-\d\d/;
const UNITS = { s: 1, min: 60, h: 3600, d: 86400 };

/* "15 min" (ago), or a time in UTC -> ISO; undefined: neither. */
export function timeOf(text) {
  const span = /^\s*(\d+)\s*(s|min|h|d)\s*$/.exec(text || '');
  if (span) {
    return isoOf(now() - span[1] * UNITS[span[2]] * 1000);
  }
  const iso = (text || '').trim().replace(' ', 'T').replace(/ ?UTC$/, '');
  return DATE.test(iso) ? isoOf(/[zZ]|[+-]\d\d:?\d\d$/.test(iso) || !iso.includes('T') ? iso : `${iso}Z`) : undefined;
}

/* undefined: it is no time, or one that no calendar has. */
function isoOf(time) {
  const at = new Date(time);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

/* The fragment's filter as the API has it; {wrong} if a part has no meaning. */
export function readFilter({ status, job_type: type, tenant, no_tenant: none, payload, error, since, until }) {
  const filter = { status, job_type: type, tenant: none ? '' : tenant || undefined, error_like: error };
  const wrong = {};
  if (payload) {
    try {
      readJson(payload);
      filter.payload_contains = payload;
    } catch (problem) {
      wrong.payload = `this is not JSON: ${problem.message}`;
    }
  }
  for (const [name, text] of [['since', since], ['until', until]]) {
    if (text) {
      filter[name] = timeOf(text);
      if (!filter[name]) {
        wrong[name] = 'a time (UTC) or a span like 15 min is expected';
      }
    }
  }
  return { filter, wrong: Object.keys(wrong).length ? wrong : null };
}

class Filters extends Component {
  constructor(props) {
    super(props);
    const { payload, error, since, until, tenant, no_tenant: none } = props.route.query;
    this.state = { open: Boolean(payload || error || since || until || tenant || none) };
  }

  set(name, value) {
    refine(this.props.route, { [name]: value });
  }

  field(name, label, more = {}) {
    const { route, wrong } = this.props;
    const { options, help, ...attributes } = more;
    return h('div', { class: 'field' }, h('label', { for: `filter-${name}`, class: more['data-search'] === '' ? 'hidden' : undefined }, label),
      h(Typed, {
        id: `filter-${name}`, type: 'search', value: route.query[name] || '', autocomplete: 'off', spellcheck: false, list: options && `options-${name}`,
        'aria-invalid': wrong?.[name] ? 'true' : undefined, 'aria-describedby': wrong?.[name] || help ? `help-${name}` : undefined,
        take: (text) => this.set(name, text), ...attributes,
      }),
      options && h('datalist', { id: `options-${name}` }, options.map((o) => h('option', { key: o, value: o }))),
      wrong?.[name] ? h('div', { id: `help-${name}`, class: 'wrong' }, wrong[name]) : help && h('div', { id: `help-${name}`, class: 'help' }, help));
  }

  render({ route, types }, { open }) {
    const { status } = route.query;
    return h('div', { class: 'filters' },
      h('div', { class: 'filter-row' },
        h('div', { class: 'chips', role: 'group', 'aria-label': 'Status' }, [undefined, ...STATUSES].map((s) => h('a', {
          key: s || 'all', href: link('jobs', { ...route.query, status: s }), 'aria-current': s === status ? 'true' : undefined,
        }, s || 'all'))),
        this.field('job_type', 'Type', { options: types, 'data-search': '', placeholder: 'Type' }),
        h(Button, { class: 'quiet', 'aria-expanded': String(open), onClick: () => this.setState({ open: !open }) }, open ? 'Fewer filters' : 'More filters')),
      open && h('div', { class: 'form wide' },
        this.field('tenant', 'Tenant', { help: 'exactly this one', disabled: Boolean(route.query.no_tenant) }),
        h('div', { class: 'field check end' }, h('input', { id: 'none', type: 'checkbox', checked: Boolean(route.query.no_tenant),
          onChange: (event) => refine(route, { no_tenant: event.target.checked ? 1 : undefined, tenant: undefined }) }), h('label', { for: 'none' }, 'Without a tenant')),
        this.field('payload', 'Payload contains', { placeholder: '{"lang": "en"}', class: 'code' }),
        this.field('error', 'Error is like', { placeholder: '%timed out%', help: 'a LIKE pattern' }),
        this.field('since', 'Since', { placeholder: '15 min, or 2026-11-26 14:30', help: 'created; UTC' }),
        this.field('until', 'Until', { placeholder: '1 h, or 2026-11-26 15:00', help: 'created; UTC' })));
  }
}

/* ---------- rows ---------- */

function summary(job) {
  if (job.error_msg && job.status !== 'completed') {
    return h('span', { class: { error: 'bad', retry: 'warn' }[job.status] || 'faint', title: job.error_msg.slice(0, 500) }, job.error_msg.slice(0, 300));
  }
  const text = job.payload === null ? '' : writeJson(job.payload);
  return h('span', { class: 'code faint' }, text.slice(0, 300));
}

function when(job) {
  if (job.status === 'running') {
    return h(Fragment, null, 'for ', h(Since, { at: job.started_at }));
  }
  if (job.completed_at) {
    return job.started_at ? h(Duration, { s: (millis(job.completed_at) - millis(job.started_at)) / 1000 }) : h('span', { class: 'faint' }, 'not run');
  }
  return millis(job.scheduled_for) > now() ? h(Time, { at: job.scheduled_for }) : h('span', { class: 'faint' }, job.status === 'blocked' ? '–' : 'due');
}

/* A step that joins, sleeps or waits for an event has no type. */
const nameOf = (job) => job.job_type ?? `step ${job.task_key}`;

const columns = [
  { key: 'status', title: 'Status', render: (j) => h(Status, { status: j.status }) },
  { key: 'job_type', title: 'Type', class: 'cut wide', render: (j) => h('a', { href: link(['jobs', j.id]), title: `${nameOf(j)} ${j.id}` }, nameOf(j)) },
  { key: 'payload', title: 'Error or payload', class: 'text', render: summary },
  { key: 'tenant', title: 'Tenant', class: 'opt cut', render: (j) => j.tenant ?? h('span', { class: 'faint' }, '–') },
  { key: 'attempts', title: 'Tries', class: 'n opt', render: (j) => h('span', { class: j.attempts ? '' : 'faint' }, `${j.attempts}/${j.max_attempts}`) },
  { key: 'when', title: 'Run', class: 'n', render: when },
  { key: 'created_at', title: 'Created', class: 'n opt', render: (j) => h(Time, { at: j.created_at }) },
];

/* ---------- the screen ---------- */

export default class Jobs extends Component {
  constructor(props) {
    super(props);
    this.state = { items: null, next: null, fresh: [], left: new Set(), problem: null, at: 0, more: false, selected: new Set(), doing: null };
  }

  componentDidMount() {
    const { api } = this.props;
    this.load();
    this.end = api.live.onChange((types) => {
      const mine = this.filter?.job_type;
      if (!types || !mine || types.includes(mine)) {
        this.refreshSoon();
      }
    });
    /* for roles that have no overview, and so hear of no change */
    this.pulse = setInterval(() => this.refreshSoon(), PULSE_MS);
    this.turned = () => this.refreshSoon();
    document.addEventListener('visibilitychange', this.turned);
  }

  componentDidUpdate() {
    if (JSON.stringify(this.props.route.query) !== this.asked) {
      this.load();
    }
  }

  componentWillUnmount() {
    this.end();
    document.removeEventListener('visibilitychange', this.turned);
    clearTimeout(this.timer);
    clearInterval(this.pulse);
    this.abort?.abort();
    this.gone = true;
  }

  /* Reads the first page anew. */
  async load() {
    const { api, route } = this.props;
    const { filter, wrong } = readFilter(route.query);
    this.asked = JSON.stringify(route.query);
    this.filter = filter;
    this.abort?.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    if (wrong) {
      this.setState({ wrong });
      return;
    }
    this.setState({ wrong: null });
    const began = performance.now();
    try {
      const { items, next, searched_to: searched } = await api.get('jobs', { ...filter, limit: PAGE }, { signal });
      this.took = performance.now() - began;
      this.loaded = this.asked;
      this.setState({ items, next, searched, fresh: [], left: new Set(), problem: null, at: Date.now(), selected: new Set() });
    } catch (problem) {
      if (!signal.aborted) {
        this.setState({ problem }, () => problem.passing && this.refreshSoon());
      }
    }
  }

  async older() {
    const { api } = this.props;
    this.setState({ more: true });
    const { asked } = this;
    const cursor = this.state.next;
    await act(async () => {
      const { items, next, searched_to: searched } = await api.get('jobs', { ...this.filter, limit: PAGE, cursor });
      if (asked === this.asked && cursor === this.state.next) {
        this.setState({ items: [...this.state.items, ...items], next, searched });
      }
    });
    this.setState({ more: false });
  }

  refreshSoon() {
    const failed = this.state.problem?.passing;
    if (!this.timer && document.visibilityState === 'visible' && (failed || (this.state.items && !this.filter.until))) {
      this.timer = setTimeout(() => {
        this.timer = null;
        if (document.visibilityState !== 'visible') {
          return;
        }
        this.loaded === this.asked ? this.refresh() : this.load();
      }, failed ? REFRESH_MS : Math.max(REFRESH_MS, REST * this.took));
    }
  }

  /* Reads the newest page: known rows change in place, others are announced. */
  async refresh() {
    const { signal } = this.abort;
    const asked = this.asked;
    const began = performance.now();
    let page;
    let next;
    try {
      ({ items: page, next } = await this.props.api.get('jobs', { ...this.filter, limit: PAGE }, { signal }));
      this.took = performance.now() - began;
    } catch (problem) {
      if (!signal.aborted) {
        this.setState({ problem }, () => problem.passing && this.refreshSoon());
      }
      return;
    }
    if (this.gone || asked !== this.asked) {
      return;
    }
    const { items } = this.state;
    const known = new Set(items.map((j) => j.id));
    const read = new Map(page.map((j) => [j.id, j]));
    /* below the rows that are shown come those of the next page */
    const last = this.state.next ? items.at(-1)?.id ?? '' : '';
    /* how far the page reaches; undefined: nothing was found */
    const oldest = next ? page.at(-1)?.id : '';
    this.setState({
      items: items.map((j) => read.get(j.id) || j),
      left: new Set(items.filter((j) => j.id >= oldest && !read.has(j.id)).map((j) => j.id)),
      fresh: page.filter((j) => !known.has(j.id) && j.id > last), problem: null, at: Date.now(),
    });
  }

  /* ---------- actions ---------- */

  /* One after the other, below the server's limit of requests. */
  async each(rows, verb, done, send) {
    const failed = [];
    let n = 0;
    for (const row of rows) {
      const pause = new Promise((resolve) => {
        setTimeout(resolve, rows.length > PER_SECOND ? 1000 / PER_SECOND : 0);
      });
      this.setState({ doing: `${verb}: ${++n} of ${rows.length}` });
      await send(row).catch((problem) => failed.push(problem));
      await pause;
    }
    this.setState({ doing: null, selected: new Set() });
    say(failed.length ? `${rows.length - failed.length} ${done}, ${failed.length} not: ${problemText(failed[0])}` : `${plural(rows.length, 'job')} ${done}`);
    this.refresh();
  }

  async cancel(rows) {
    const { api } = this.props;
    const running = rows.filter((j) => j.status === 'running').length;
    const given = await ask({
      title: `Cancel ${plural(rows.length, 'job')}`, submit: 'Cancel them', tone: 'danger',
      text: [running ? `${num(running)} of them run: their changes are rolled back.` : null, 'Jobs that have ended stay as they are.'].filter(Boolean),
      fields: [{ name: 'reason', label: 'Reason', help: 'the job keeps it as its error' }],
    });
    if (given) {
      this.each(rows, 'Cancel', 'cancelled', (j) => api.post(['jobs', j.id, 'cancel'], given));
    }
  }

  async retry(rows) {
    const { api } = this.props;
    if (rows.length === 1 || await ask({ title: `Retry ${plural(rows.length, 'job')}`, submit: 'Retry them', text: 'They run again, as the same jobs.' })) {
      this.each(rows, 'Retry', 'retried', (j) => api.post(['jobs', j.id, 'retry'], {}));
    }
  }

  /* The filter of this list, as far as an action on all knows it, and what it says. */
  async bulk(action) {
    const { api } = this.props;
    const { job_type: type, tenant, payload_contains: payload, error_like: error } = this.filter;
    const status = action === 'cancel' ? this.filter.status : undefined;
    const filter = { job_type: type, tenant, payload_contains: payload && readJson(payload), status, error_like: action === 'retry' ? error : undefined };
    const about = [
      status ? `All jobs with the status ${status}` : action === 'cancel' ? 'All jobs that wait (pending, blocked, retry)' : 'All dead letters',
      type ? `of the type ${type}` : 'of all types', tenant ? `of the tenant ${tenant}` : tenant === '' ? 'without a tenant' : null,
      payload && `whose payload contains ${payload}`, filter.error_like ? `whose error is like ${error}` : null,
    ].filter(Boolean).join(', ');
    const { openBulk } = await import('./bulk.js');
    await openBulk({ api, action, filter, about: `${about}.`, ...(status && { what: `${status} jobs` }),
      ...(status === 'running' && { text: 'Their attempts are stopped, and their changes rolled back.' }) });
    this.load();
  }

  async enqueue() {
    const { askEnqueue } = await import('./enqueue.js');
    const made = await askEnqueue(this.props.api, { job_type: this.filter.job_type });
    if (made) {
      location.assign(link(['jobs', made.id]));
    }
  }

  /* ---------- drawing ---------- */

  buttons() {
    const { api, route } = this.props;
    const { status, since, until, error, job_type: type, tenant, no_tenant: none, payload } = route.query;
    const why = this.state.wrong ? 'Not with a filter that is wrong' : since || until ? 'Not with since or until: these are no part of a bulk filter'
      : payload?.trim() === 'null' ? 'Not with the payload null, which is no part of a bulk filter'
        : type || tenant || none || payload || error ? undefined : 'Choose a type, a tenant or a payload first';
    const bulk = (action, icon, label) => h(Button, { icon, disabled: Boolean(why), title: why, onClick: () => this.bulk(action) }, label);
    return [
      api.can('admin') && !error && (!status || LIVE.includes(status)) && bulk('cancel', 'ban', 'Cancel all …'),
      api.can('admin') && (!status || status === 'error') && bulk('retry', 'redo', 'Retry all …'),
      api.can('enqueue') && h(Button, { class: 'primary', icon: 'plus', onClick: () => this.enqueue() }, 'Enqueue'),
    ];
  }

  selectionBar() {
    const { selected, items, doing } = this.state;
    const rows = items.filter((j) => selected.has(j.id));
    return (selected.size > 0 || doing) && h('div', { class: 'bar-actions', role: 'status' },
      h('b', null, doing || `${num(selected.size)} selected`),
      !doing && h(Fragment, null,
        h(Button, { class: 'small', icon: 'ban', onClick: () => this.cancel(rows) }, 'Cancel', h('kbd', null, 'c')),
        h(Button, { class: 'small', icon: 'redo', onClick: () => this.retry(rows) }, 'Retry', h('kbd', null, 'r')),
        h(Button, { class: 'small quiet', onClick: () => this.setState({ selected: new Set() }) }, 'Select none')));
  }

  list() {
    const { api } = this.props;
    const { items, next, searched, fresh, left, more, selected } = this.state;
    const onward = next && h(Button, { disabled: more, onClick: () => this.older() }, more ? 'Searching …' : searched ? 'Search further back' : 'Show older');
    const may = api.can('admin');
    const filtered = Object.keys(this.props.route.query).length > 0;
    if (!items.length && !fresh.length && searched) {
      return h(Empty, null, h('p', null, 'No job matches so far: searched back to ', h(Time, { at: searched }), '.'), onward);
    }
    if (!items.length && !fresh.length) {
      return h(Empty, null, h('p', null, filtered ? 'No job matches the filter.' : 'There are no jobs yet.'),
        h('p', null, filtered ? h('a', { href: link('jobs') }, 'Show all jobs') : 'jobq.enqueue() makes them; finished jobs stay for the time of their type.'));
    }
    return h(Fragment, null,
      h(NewRows, { n: fresh.length, more: fresh.length >= PAGE, show: () => this.load() }),
      h(Table, {
        rows: items, columns, caption: 'Jobs', href: (j) => link(['jobs', j.id]), rowLabel: (j) => `${nameOf(j)} ${j.id}`,
        rowClass: (j) => (left.has(j.id) ? 'left' : ''), selection: may ? { set: selected, onChange: (set) => this.setState({ selected: set }) } : undefined,
        keys: may ? { c: (rows) => this.cancel(rows), r: (rows) => this.retry(rows) } : {},
      }),
      this.selectionBar(),
      h('div', { class: 'under' },
        onward || h('span', null, 'These are all.'), next && searched && h('span', null, 'searched back to ', h(Time, { at: searched })),
        h('span', null, `${num(items.length)} shown, the newest first`), left.size > 0 && h('span', null, h(Icon, { name: 'info' }), ' faint rows do not match any more')));
  }

  render({ api, route }, { items, problem, at, wrong }) {
    const types = (api.live.state.data?.types || []).map((t) => t.job_type).filter(Boolean);
    return h(Fragment, null,
      h(Head, { title }, this.buttons()),
      h(Filters, { route, types, wrong }),
      problem && h(this.loaded === this.asked && problem.passing ? Stale : Trouble, { problem, at, again: () => this.load() }),
      items ? this.list() : !problem && !wrong && h(Loading));
  }
}
