/*
 * Limits that job types share; pressure signals and the rules that follow
 * them. Lists are read whole: rules and signals are looked up in each other.
 */
import {
  Badge, Bar, Button, Component, Empty, Fragment, Head, Loading, Stale, Status, Time, Trouble, act, ask, duration, h,
  interval, link, millis, now, num, seconds,
} from './ui.js';
import { Table } from './table.js';

const RENEW_MS = 5000;
const titles = { limits: 'Limits', rules: 'Rules' };

export const title = (route) => titles[route.name];

const faint = (text) => h('span', { class: 'faint' }, text);

/* A screen of two lists, {paths: [[path, all]]}; state.first and state.second are those of api.watch. */
class Both extends Component {
  constructor(props) {
    super(props);
    this.state = { first: {}, second: {} };
  }

  componentDidMount() {
    const { api, paths } = this.props;
    this.watchers = ['first', 'second'].map((part, i) => api.watch(paths[i][0], null, RENEW_MS,
      (state) => this.setState({ [part]: state }), paths[i][1]));
    this.again = () => this.watchers.forEach((watcher) => watcher.again());
  }

  componentWillUnmount() {
    this.watchers.forEach((watcher) => watcher.stop());
  }

  /* What stands in place of data that is missing or old; lenient: the second may be refused. */
  troubles(lenient) {
    const { first, second } = this.state;
    const problem = first.problem || (lenient && second.problem?.status === 403 ? null : second.problem);
    const ready = first.data && (second.data || lenient);
    if (!problem) {
      return !ready && h(Loading);
    }
    return ready && problem.passing ? h(Stale, { at: first.at, problem, again: this.again })
      : h(Trouble, { problem, again: this.again });
  }
}

/* Below a list that goes on after the last row that is read. */
const Cut = ({ list }) => list.next && h('p', { class: 'under' }, `The first ${num(list.items.length)}; there are more.`);

/* ---------- limits ---------- */

/* A limit is a maximum of jobs at once, of starts in a window, or both. */
function rate(limit) {
  const s = seconds(limit.rate_window);
  return `${num(limit.rate_limit)} in ${s === 1 ? '1 s' : interval(limit.rate_window)}`;
}

function Used({ used, max }) {
  if (used === null || used === undefined) {
    return faint('–');
  }
  return h('span', { class: 'used' }, h(Bar, { used, max, title: `${num(used)} of ${num(max)}` }),
    h('span', { class: 'nobr' }, `${num(used)} / ${num(max)}`),
    used >= max && h(Badge, { tone: 'warn', icon: 'lock' }, 'full'));
}

function setLimit(api, limit, again) {
  return ask({
    title: limit ? `Limit ${limit.name}` : 'New limit', submit: 'Save', values: limit,
    text: 'Job types name it in their option limits; their jobs then count together.',
    fields: [
      ...(limit ? [] : [{ name: 'name', label: 'Name', type: 'text', required: true }]),
      { name: 'max_concurrent', label: 'Jobs at once', type: 'int', help: '0 or empty: no maximum' },
      { name: 'rate_limit', label: 'Starts in a window', type: 'int', help: '0 or empty: no maximum' },
      { name: 'rate_window', label: 'Window', type: 'interval', placeholder: '1s' },
    ],
    run: async ({ name, ...values }) => {
      await api.put(['limits', limit ? limit.name : name], values);
      again();
    },
  });
}

function dropLimit(api, limit, again) {
  return ask({
    title: `Drop limit ${limit.name}`, tone: 'danger', submit: 'Drop', type: limit.name,
    text: 'Job types that name it must have lost it from their option limits before.',
    run: () => api.del(['limits', limit.name]).then(again),
  });
}

function limitColumns(api, again) {
  return [
    { key: 'name', title: 'Limit', sort: (l) => l.name, render: (l) => h('b', null, l.name) },
    {
      key: 'running', title: 'Running jobs', class: 'nobr',
      sort: (l) => (l.max_concurrent ? (l.used ?? 0) / l.max_concurrent : -1),
      render: (l) => (l.max_concurrent ? h(Used, { used: l.used, max: l.max_concurrent }) : faint('no maximum')),
    },
    { key: 'rate', title: 'Starts', class: 'nobr wide', render: (l) => (l.rate_limit ? rate(l) : faint('no maximum')) },
    { key: 'held_s', title: 'Full for', class: 'n', sort: (l) => l.held_s,
      render: (l) => (l.held_s ? duration(l.held_s) : faint('–')) },
    api.can('configure') && {
      key: 'act', title: h('span', { class: 'hidden' }, 'Actions'), class: 'act',
      render: (l) => h(Fragment, null,
        h(Button, { class: 'small', onClick: () => setLimit(api, l, again), 'aria-label': `Set ${l.name}` }, 'Set'), ' ',
        h(Button, { class: 'small danger', onClick: () => dropLimit(api, l, again), 'aria-label': `Drop ${l.name}` },
          'Drop')),
    },
  ].filter(Boolean);
}

const kinds = {
  jobs: 'all running jobs', weight: 'their weight', job_type: 'job type', type_rate: 'starts of job type', tenant: 'tenant',
  run_limit: 'runs under', run_limit_rate: 'starts of runs under', _other: 'further limits',
};

const otherColumns = [
  {
    key: 'name', title: 'Of', class: 'wide', sort: (u) => u.name ?? '',
    render: (u) => h(Fragment, null, faint(kinds[u.kind] || u.kind), ' ', /type/.test(u.kind)
      ? h('a', { href: link(['types', u.name]) }, u.name) : u.name),
  },
  { key: 'used', title: 'Used', class: 'nobr', sort: (u) => u.used / u.max, render: (u) => (u.max === null ? num(u.used) : h(Used, u)) },
  { key: 'held_s', title: 'Full for', class: 'n', sort: (u) => u.held_s,
    render: (u) => (u.held_s ? duration(u.held_s) : faint('–')) },
];

/* Limits, and how full they are: the second needs the right to read statistics. */
class Limits extends Both {
  render({ api }, { first, second }) {
    const usage = second.data?.items || [];
    const of = (kind) => new Map(usage.filter((u) => u.kind === kind).map((u) => [u.name, u]));
    const [used, starts] = [of('limit'), of('limit_rate')];
    const rows = first.data?.items.map((l) => ({
      ...l, used: used.get(l.name)?.used, held_s: used.get(l.name)?.held_s ?? starts.get(l.name)?.held_s,
    }));
    const others = usage.filter((u) => !/^limit/.test(u.kind));
    return h(Fragment, null,
      h(Head, { title: 'Limits', about: 'Maxima that several job types share: a licence, a service\'s rate, a GPU.' },
        api.can('configure') && rows && h(Button, { icon: 'plus', onClick: () => setLimit(api, null, this.again) },
          'New limit …')),
      this.troubles(true),
      rows && (rows.length ? h(Table, { rows, rowKey: (l) => l.name, columns: limitColumns(api, this.again),
        caption: 'Limits' })
        : h(Empty, null, 'No limit is shared. Job types have maxima of their own; a limit here holds several together.')),
      rows && h(Cut, { list: first.data }),
      others.length > 0 && h('section', null, h('h2', null, 'Other maxima'),
        h(Table, { rows: others, rowKey: (u) => `${u.kind} ${u.name}`, columns: otherColumns, caption: 'Other maxima',
          compact: true })));
  }
}

/* ---------- signals ---------- */

/* The row of a signal with a time limit stays as it is when that is over. */
const isOn = (signal) => signal.active && (!signal.active_until || millis(signal.active_until) > now());

function until(signal) {
  if (!isOn(signal)) {
    return faint('–');
  }
  return signal.active_until ? h(Fragment, null, 'ends ', h(Time, { at: signal.active_until })) : 'until switched off';
}

function switchOn(api, signal, again) {
  return ask({
    title: `Switch on ${signal.name}`, submit: 'Switch on', text: 'Its rules hold from now on.',
    fields: [{ name: 'ttl', label: 'For', type: 'interval', placeholder: '10 min',
      help: 'empty: until it is switched off' }],
    run: async ({ ttl }) => {
      await api.put(['signals', signal.name], { active: true, ttl });
      again();
    },
  });
}

function newSignal(api, again) {
  return ask({
    title: 'New signal', submit: 'Create',
    text: 'A signal that is switched by hand or by a program. One with a condition is made with jobq.create_signal().',
    fields: [{ name: 'name', label: 'Name', type: 'text', required: true },
      { name: 'active', label: 'On at once', type: 'bool' },
      { name: 'ttl', label: 'For', type: 'interval', placeholder: '10 min' }],
    run: ({ name, ...values }) => api.put(['signals', name], values).then(again),
  });
}

/* Its rules are asked for: they may be newer than those that are shown. */
async function dropSignal(api, signal, again) {
  let rules;
  if (!await act(async () => { rules = await api.all('rules', { signal: signal.name }); })) {
    return;
  }
  const n = rules.items.length;
  ask({
    title: `Drop signal ${signal.name}`, tone: 'danger', submit: 'Drop', type: signal.name,
    text: n ? `Its ${n === 1 ? 'rule goes' : `${num(n)}${rules.next ? '+' : ''} rules go`} with it.` : 'It has no rules.',
    run: () => api.del(['signals', signal.name], { force: n > 0 || undefined }).then(again),
  });
}

/* The switch of a signal; of one with a condition only its state. */
function Switch({ api, signal, again }) {
  const on = isOn(signal);
  const word = on ? 'on' : 'off';
  const off = () => act(() => api.put(['signals', signal.name], { active: false }).then(again), `${signal.name} is off`);
  if (!api.can('configure') || signal.condition || signal.builtin) {
    return h(Badge, { tone: on ? 'accent' : '', icon: on ? 'check' : 'ban' }, word);
  }
  return h('button', {
    type: 'button', role: 'switch', class: 'switch', 'aria-checked': String(on), 'aria-label': signal.name,
    onClick: () => (on ? off() : switchOn(api, signal, again)),
  }, h('span', { class: 'knob', 'aria-hidden': 'true' }), word);
}

function signalColumns(api, rules, again) {
  const n = (signal) => rules.filter((rule) => rule.signal === signal.name).length;
  return [
    { key: 'active', title: 'State', render: (s) => h(Switch, { api, signal: s, again }) },
    { key: 'name', title: 'Signal', sort: (s) => s.name, render: (s) => h('b', null, s.name) },
    { key: 'until', title: 'On', class: 'nobr', render: until },
    {
      key: 'set', title: 'Set by', class: 'wide',
      render: (s) => h(Fragment, null, s.builtin ? 'jobq itself'
        : s.condition ? h(Fragment, null, h('code', null, s.condition), ' every ', interval(s.every),
          faint(` as ${s.definer}`)) : 'hand or program',
      s.problem && h('div', { class: 'bad' }, h(Status, { status: 'failed' }), ' ', s.problem)),
    },
    { key: 'rules', title: 'Rules', class: 'n', render: (s) => num(n(s)) },
    { key: 'changed_at', title: 'Changed', class: 'nobr', render: (s) => h(Time, { at: s.changed_at }) },
    api.can('configure') && {
      key: 'act', title: h('span', { class: 'hidden' }, 'Actions'), class: 'act',
      render: (s) => !s.builtin && h(Button, { class: 'small danger', onClick: () => dropSignal(api, s, again),
        'aria-label': `Drop ${s.name}` }, 'Drop'),
    },
  ].filter(Boolean);
}

/* ---------- rules ---------- */

/* What a rule does, in words. */
function effect(rule) {
  return [
    rule.block && 'starts no job',
    rule.priority_adj && `priority ${rule.priority_adj > 0 ? '+' : '−'}${Math.abs(rule.priority_adj)}`,
    rule.max_weight !== null && rule.max_weight !== undefined && `weight at most ${num(rule.max_weight)}`,
  ].filter(Boolean).join(', ') || 'nothing';
}

function setRule(api, rule, signals, again) {
  const types = (api.live.state.data?.types || []).map((t) => t.job_type).filter(Boolean);
  return ask({
    title: rule ? `Rule of ${rule.job_type ?? 'every type'} for ${rule.signal}` : 'New rule', submit: 'Save', values: rule,
    text: 'What changes for a job type while the signal is on.',
    fields: [
      ...(rule ? [] : [
        { name: 'job_type', label: 'Job type', type: 'text', suggest: types, help: 'empty: every type' },
        { name: 'signal', label: 'Signal', type: 'text', required: true, suggest: signals.map((s) => s.name) }]),
      { name: 'block', label: 'Start no job', type: 'bool' },
      { name: 'priority_adj', label: 'Added to the priority', type: 'int', help: 'below 0: other types go first' },
      { name: 'max_weight', label: 'Weight of running jobs, at most', type: 'int' },
    ],
    run: (values) => api.put('rules', { ...(rule && { job_type: rule.job_type, signal: rule.signal }),
      ...values }).then(again),
  });
}

function dropRule(api, rule, again) {
  return ask({
    title: 'Remove the rule', tone: 'danger', submit: 'Remove',
    text: `While ${rule.signal} is on, ${rule.job_type ?? 'every type'}: ${effect(rule)}. This would no longer hold.`,
    run: () => api.del('rules', { job_type: rule.job_type, signal: rule.signal }).then(again),
  });
}

function ruleColumns(api, signals, again) {
  const on = (rule) => signals.some((s) => s.name === rule.signal && isOn(s));
  return [
    { key: 'job_type', title: 'Job type', sort: (r) => r.job_type ?? '',
      render: (r) => (r.job_type === null ? 'every type' : h('a', { href: link(['types', r.job_type]) }, r.job_type)) },
    { key: 'signal', title: 'While', sort: (r) => r.signal, render: (r) => h(Fragment, null, r.signal, ' is on') },
    { key: 'effect', title: 'Effect', class: 'wide', render: effect },
    { key: 'now', title: 'Now', render: (r) => (on(r) ? h(Badge, { tone: 'warn', icon: 'check' }, 'holds') : faint('no')) },
    api.can('configure') && {
      key: 'act', title: h('span', { class: 'hidden' }, 'Actions'), class: 'act',
      render: (r) => h(Fragment, null,
        h(Button, { class: 'small', onClick: () => setRule(api, r, signals, again),
          'aria-label': `Change the rule of ${r.job_type ?? 'every type'} for ${r.signal}` }, 'Change'), ' ',
        h(Button, { class: 'small danger', onClick: () => dropRule(api, r, again),
          'aria-label': `Remove the rule of ${r.job_type ?? 'every type'} for ${r.signal}` }, 'Remove')),
    },
  ].filter(Boolean);
}

class Rules extends Both {
  lists() {
    const { api } = this.props;
    const { first, second } = this.state;
    const [signals, rules] = [first.data.items, second.data.items];
    return h(Fragment, null,
      h('section', null, h('h2', null, 'Signals'),
        signals.length ? h(Table, { rows: signals, rowKey: (s) => s.name, columns: signalColumns(api, rules, this.again),
          caption: 'Signals' })
          : h(Empty, null, 'No signal. jobq.set_signal() sets one: a call is on, backups run, the machine is needed elsewhere.'),
        h(Cut, { list: first.data })),
      h('section', null, h('h2', null, 'Rules'),
        rules.length ? h(Table, { rows: rules, rowKey: (r) => `${r.signal} ${r.job_type}`,
          columns: ruleColumns(api, signals, this.again), caption: 'Rules' })
          : h(Empty, null, 'No rule. A rule blocks a type, or moves its priority, while a signal is on.'),
        h(Cut, { list: second.data })));
  }

  render({ api }, { first, second }) {
    const ready = first.data && second.data;
    return h(Fragment, null,
      h(Head, { title: 'Rules', about: 'While a signal is on, its rules hold jobs back or move their priority.' },
        api.can('configure') && ready && h(Fragment, null,
          h(Button, { icon: 'plus', onClick: () => newSignal(api, this.again) }, 'New signal …'),
          h(Button, { icon: 'plus', onClick: () => setRule(api, null, first.data.items, this.again) }, 'New rule …'))),
      this.troubles(false),
      ready && this.lists());
  }
}

export default class Screen extends Component {
  render({ route, api }) {
    return route.name === 'limits' ? h(Limits, { api, paths: [['limits', true], ['limits/usage']] })
      : h(Rules, { api, paths: [['signals', true], ['rules', true]] });
  }
}
