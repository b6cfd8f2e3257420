/*
 * Job types: the list with live numbers, and a type with its numbers, its
 * errors and its settings.
 */
import {
  Badge, Button, Component, Duration, Empty, Facts, Fragment, Head, Num, Remote, Searched, Status, Time, act, ask, duration, h,
  interval, link, millis, now, num, percent,
  plural, refine, short,
} from './ui.js';
import { Filters, Found, Pages } from './pages.js';
import { Table } from './table.js';

const TYPES_AT_ONCE = 200;
const bounds = [0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 7200];

export const title = (route) => route.id || 'Types';

/* ---------- numbers ---------- */

/* Returns the upper bound of the bucket with this share of all, as text. */
function quantile(buckets, share) {
  const all = (buckets || []).reduce((sum, n) => sum + n, 0);
  let sum = 0;
  const i = (buckets || []).findIndex((n) => {
    sum += n;
    return sum >= all * share;
  });
  if (!all) {
    return '–';
  }
  return i < bounds.length ? `≤ ${duration(bounds[i])}` : `> ${duration(bounds.at(-1))}`;
}

const failuresOf = (live) => Object.values(live.failures || {}).reduce((sum, n) => sum + n, 0);
const failRate = (live) => percent(failuresOf(live), failuresOf(live) + live.completed + live.skipped);

/* Draws its child with the live numbers by job type; {} before they come. */
class Live extends Component {
  constructor(props) {
    super(props);
    this.state = { types: {} };
  }

  componentDidMount() {
    this.end = this.props.api.live.follow(({ data }) => data
      && this.setState({ types: Object.fromEntries((data.types || []).map((t) => [t.job_type, t])) }));
  }

  componentWillUnmount() {
    this.end();
  }

  render({ children }, { types }) {
    return (Array.isArray(children) ? children[0] : children)(types);
  }
}

/* ---------- pause and resume ---------- */

function pause(api, name, again) {
  return ask({
    title: `Pause ${name}`, text: 'Running jobs go on; no other one of the type starts.', submit: 'Pause',
    fields: [{ name: 'reason', label: 'Reason', type: 'text' },
      { name: 'duration', label: 'For', type: 'interval', placeholder: '30 min',
        help: 'empty: until somebody resumes it' }],
    run: (values) => api.post(['types', name, 'pause'], values).then(again),
  });
}

/* The row of a pause that has ended stays until the type is resumed. */
function isPaused(type) {
  return type.paused && !(type.paused_until && millis(type.paused_until) <= now());
}

function PauseButton({ api, type, again, size }) {
  const resume = () => act(() => api.post(['types', type.name, 'resume']).then(again), `${type.name} resumed`);
  return isPaused(type)
    ? h(Button, { class: size, icon: 'play', onClick: resume, 'aria-label': `Resume ${type.name}` }, 'Resume')
    : h(Button, { class: size, icon: 'pause', onClick: () => pause(api, type.name, again),
      'aria-label': `Pause ${type.name}` }, 'Pause');
}

function Paused({ type }) {
  return h('div', { class: 'note warn' }, h(Status, { status: 'paused' }), ' ',
    type.pause_reason || 'without a reason',
    type.paused_at && h(Fragment, null, ', since ', h(Time, { at: type.paused_at })),
    type.paused_until && h(Fragment, null, ', ends ', h(Time, { at: type.paused_until })));
}

/* ---------- the list ---------- */

const ofAll = (n, max) => (max ? `${num(n)}/${num(max)}` : num(n));
const faint = (text) => h('span', { class: 'faint' }, text);

function columns(api, live, again) {
  const of = (t) => live[t.name];
  const count = (key, name, href) => ({
    key, title: name, class: 'n', sort: (t) => of(t)?.[key] ?? 0,
    render: (t) => (of(t)?.[key] ? h('a', { href: href(t) }, short(of(t)[key])) : faint(of(t)?.[key] === undefined ? '–' : '0')),
  });
  const status = (s) => (t) => link('jobs', { job_type: t.name, status: s });
  return [
    {
      key: 'name', title: 'Type', class: 'wide', sort: (t) => t.name,
      render: (t) => h(Fragment, null, h('a', { href: link(['types', t.name]) }, t.name), ' ',
        h('span', { class: 'kind' }, t.kind),
        t.critical && h('span', { title: 'Its dead letters raise alerts of severity high' }, ' ', h(Badge, { tone: 'warn' }, 'critical')),
        isPaused(t) && h('span', { title: t.pause_reason || undefined }, ' ', h(Status, { status: 'paused' }))),
    },
    count('due', 'Due', status('pending')),
    {
      key: 'running', title: 'Running', class: 'n', sort: (t) => of(t)?.running ?? 0,
      render: (t) => (of(t) ? h(of(t).running ? 'a' : 'span',
        { class: of(t).running ? '' : 'faint', href: of(t).running ? status('running')(t) : undefined },
        ofAll(of(t).running, t.max_concurrent)) : faint('–')),
    },
    count('retry', 'Retry', status('retry')),
    count('dead', 'Dead', (t) => link('dead', { job_type: t.name })),
    { key: 'fail', title: 'Failed', class: 'n', render: (t) => (of(t) ? failRate(of(t)) : faint('–')) },
    { key: 'oldest', title: 'Oldest due', class: 'n', sort: (t) => of(t)?.oldest_due_s,
      render: (t) => h(Duration, { s: of(t)?.oldest_due_s }) },
    { key: 'base_priority', title: 'Priority', class: 'n roomy', sort: (t) => t.base_priority },
    { key: 'timeout', title: 'Timeout', class: 'n opt', render: (t) => interval(t.timeout) },
    { key: 'max_attempts', title: 'Attempts', class: 'n roomy', sort: (t) => t.max_attempts },
    {
      key: 'rate', title: 'Rate', class: 'n opt',
      render: (t) => (t.rate_limit ? `${num(t.rate_limit)} / ${interval(t.rate_window)}` : faint('–')),
    },
    api.can('configure') && { key: 'actions', title: h('span', { class: 'hidden' }, 'Actions'), class: 'act',
      render: (t) => h(PauseButton, { api, type: t, again, size: 'small' }) },
  ].filter(Boolean);
}

function List({ route, api }) {
  const { find = '', kind = '', state = '' } = route.query;
  const query = { search: find, kind, paused: state && state === 'paused' };
  const fields = [{ name: 'find', label: 'Name' },
    { name: 'kind', label: 'Kind', options: [['', 'all'], ...['sql', 'exec', 'pull', 'workflow'].map((k) => [k, k])] },
    { name: 'state', label: 'State', options: [['', 'all'], ['active', 'active'], ['paused', 'paused']] }];
  return h(Fragment, null,
    h(Head, { title: 'Job types', about: 'What jobs of a type share: their work, their limits, how long they are kept.' },
      api.can('configure') && h('a', { class: 'button', href: link('types', { new: 1 }) }, 'New type …')),
    h(Filters, { route, fields }),
    h(Pages, { api, path: 'types', query, limit: TYPES_AT_ONCE, every: 10000, keyOf: (t) => t.name,
      empty: find || kind || state ? 'No job type is like this.' : 'No job type. jobq.create_job_type() makes one, or New type above.' },
      (items, again, rowClass) => h(Live, { api }, (live) => {
        const rows = [...items].sort((a, b) => (a.name < b.name ? -1 : 1));
        return h(Fragment, null,
          h('p', { class: 'count' }, plural(items.length, 'type')),
          h(Table, { rows, columns: columns(api, live, again), rowKey: (t) => t.name, caption: 'Job types',
            rowClass, href: (t) => link(['types', t.name]) }));
      })));
}

/* ---------- a type ---------- */

const kinds = { error: 'error', timeout: 'timeout', exit: 'exit code', signal: 'signal', crash: 'crash',
  lease: 'lost lease', output: 'bad output', other: 'other' };

function Numbers({ live, type }) {
  if (!live) {
    return h('p', { class: 'faint' }, 'Its numbers need pg_monitor, or access read for all tenants.');
  }
  const status = [['Running', ofAll(live.running, type.max_concurrent)], ['Retry', num(live.retry)], ['Blocked', num(live.blocked)],
    ['Dead letters', live.dead ? h('a', { href: link('dead', { job_type: type.name }) }, num(live.dead)) : '0']];
  if (live.due === undefined) {
    return h('div', { class: 'short' }, h(Facts, { rows: [['Pending', num(live.pending)], ...status] }),
      h('p', { class: 'under' }, 'Of the tenants that your role sees. The other numbers need pg_monitor, or access read for all tenants.'));
  }
  const failed = Object.entries(live.failures || {}).filter(([, n]) => n > 0)
    .map(([kind, n]) => `${num(n)} ${kinds[kind] || kind}`);
  const drain = live.drain_s === null ? (live.due ? 'grows' : '–') : live.drain_s === 0 ? '–' : duration(live.drain_s);
  return h('div', { class: 'short' }, h(Facts, {
    rows: [
      ['Due', h(Num, { n: live.due, exact: live.due_exact })],
      ['Later', num(live.pending - Math.min(live.due, live.pending))],
      ...status,
      ['Oldest due', duration(live.oldest_due_s)], ['Drained in', drain],
      ['Completed', num(live.completed)],
      ['Failed attempts', failed.length ? `${failRate(live)}: ${failed.join(', ')}` : '0'],
      ['Wait', `50% ${quantile(live.wait_buckets, 0.5)}, 95% ${quantile(live.wait_buckets, 0.95)}`],
      ['Run', `50% ${quantile(live.run_buckets, 0.5)}, 95% ${quantile(live.run_buckets, 0.95)}`],
      ['Last failed', live.last_failed && h(Time, { at: live.last_failed })],
      ['Counted since', h(Time, { at: live.stats_reset })],
    ],
  }));
}

function Errors({ api, name }) {
  const of = (e) => link('dead', { job_type: name, error_code: e.error_code });
  return h(Remote, { api, path: 'errors', query: { job_type: name, max_rows: 10 }, every: 15000 },
    ({ items, searched_to: searched }) => (items.length === 0
      ? h(Empty, null, searched ? h(Searched, { at: searched }) : 'No job has failed that waits for a retry or is a dead letter.') : h(Table, {
      rows: items, rowKey: (e) => `${e.error_code} ${e.pattern}`, caption: 'Top errors', compact: true, href: of,
      columns: [
        { key: 'n', title: 'Jobs', class: 'n', render: (e) => num(e.n) },
        { key: 'error_code', title: 'Code', class: 'nobr', render: (e) => h('code', null, e.error_code || '–') },
        { key: 'pattern', title: 'Error', class: 'wide',
          render: (e) => h('a', { href: link(['jobs', e.job_id]), title: 'The newest job with it' }, e.pattern ?? 'no message') },
        { key: 'last', title: 'Last', class: 'nobr', render: (e) => h(Time, { at: e.last }) },
      ],
    })));
}

async function drop(api, type, live) {
  const n = live ? live.pending + live.blocked + live.retry + live.running : null;
  const done = await ask({
    title: `Drop ${type.name}`, tone: 'danger', submit: 'Drop', type: type.name,
    text: ['The type, its rules and, of a workflow, its versions are gone. Finished jobs and dead letters stay as long as they are kept.',
      n ? `${plural(n, 'job')} of it ${n === 1 ? 'is' : 'are'} live.` : null].filter(Boolean),
    fields: [{ name: 'force', label: 'Cancel its live jobs', type: 'bool' }],
    run: async ({ force }) => {
      await api.del(['types', type.name], { force });
      return true;
    },
  });
  if (done) {
    location.assign(link('types'));
  }
}

class Settings extends Component {
  constructor(props) {
    super(props);
    this.state = { module: null };
  }

  async componentDidMount() {
    this.setState({ module: await import('./settings.js') });
  }

  render(props, { module }) {
    return module && h(module.default, props);
  }
}

function Type({ route, api }) {
  const name = route.id;
  const edit = route.query.edit === '1';
  return h(Found, { api, title: name, path: ['types', name], every: edit ? 0 : 10000 },
    (type, again) => h(Live, { api }, (live) => h(Fragment, null,
    h(Head, { title: name, about: h(Fragment, null, h('span', { class: 'kind' }, type.kind),
      ` type of ${type.owner}, created `, h(Time, { at: type.created_at })) },
      h('a', { class: 'button', href: link('jobs', { job_type: name }) }, 'Jobs'),
      type.kind === 'workflow' && h('a', { class: 'button', href: link('runs', { workflow: name }) }, 'Runs'),
      api.can('configure') && h(PauseButton, { api, type, again }),
      api.can('configure') && h(Button, { class: 'danger', onClick: () => drop(api, type, live[name]) }, 'Drop …')),
    isPaused(type) && h(Paused, { type }),
    !edit && h(Fragment, null,
      h('section', null, h('h2', null, 'Numbers'), h(Numbers, { live: live[name], type })),
      h('section', null, h('h2', null, 'Top errors'), h(Errors, { api, name }))),
    h('section', null,
      h('div', { class: 'section-head' }, h('h2', { class: 'grow' }, 'Settings'),
        !edit && api.can('configure') && h(Button, { onClick: () => refine(route, { edit: 1 }) }, 'Change …')),
      h(Settings, {
        key: edit ? 'edit' : 'read', api, type, edit,
        done: () => {
          refine(route, { edit: '' });
          again();
        },
      })))));
}

export default class Screen extends Component {
  render({ route, api }) {
    if (route.id) {
      return h(Type, { route, api });
    }
    if (route.query.new) {
      return h(Fragment, null, h(Head, { title: 'New job type',
        about: 'Its work is a SQL function, a program, or, with neither, up to clients that claim its jobs.' }),
        h(Settings, { api, edit: true, done: (name) => location.assign(name ? link(['types', name]) : link('types')) }));
    }
    return h(List, { route, api });
  }
}
