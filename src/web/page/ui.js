/*
 * What screens are made of: words for values, small components, states.
 *
 * Text from outside goes through Preact text nodes only. Dialogs, forms and
 * plots are in files of their own that are loaded when first used.
 */
import { Component, Fragment, createRef, h, render } from './vendor/preact.js';

export { Component, Fragment, createRef, h, render };

/* ---------- words for values ---------- */

let clockSkew = 0;

export function setSkew(ms) {
  clockSkew = ms;
}

/* The server's time, in ms. */
export function now() {
  return Date.now() + clockSkew;
}

const whole = new Intl.NumberFormat('en');

/* 12345 -> "12,345" */
export function num(n) {
  return n === null || n === undefined ? '–' : whole.format(Math.round(n * 100) / 100);
}

/* 12345 -> "12.3k" */
export function short(n) {
  if (n === null || n === undefined) {
    return '–';
  }
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
    if (Math.abs(n) >= size * 0.9995) {
      const v = n / size;
      return (v < 99.95 ? v.toFixed(1).replace('.0', '') : String(Math.round(v))) + unit;
    }
  }
  return Math.abs(n) < 10 && n % 1 ? n.toFixed(1) : String(Math.round(n));
}

export function bytes(n) {
  if (n === null || n === undefined) {
    return '–';
  }
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let i = 0;
  for (; n >= 1024 && i < 4; i++) {
    n /= 1024;
  }
  return `${i > 0 && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

export function percent(part, all) {
  if (!all) {
    return '–';
  }
  const p = (100 * part) / all;
  return `${p > 0 && p < 9.95 ? p.toFixed(1).replace('.0', '') : Math.round(p)}%`;
}

const steps = [['y', 31557600], ['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];

/* Seconds -> "340 ms", "4.2 s", "12 min", "1 h 20 min", "3 d 4 h" */
export function duration(s) {
  if (s === null || s === undefined || Number.isNaN(s)) {
    return '–';
  }
  const abs = Math.abs(s);
  if (abs < 0.9995) {
    return abs === 0 ? '0 s' : `${Math.max(1, Math.round(abs * 1000))} ms`;
  }
  if (abs < 9.95) {
    return `${abs.toFixed(1).replace('.0', '')} s`;
  }
  const i = steps.findIndex(([, size]) => abs >= size);
  const [unit, size] = steps[i];
  const n = Math.floor(abs / size);
  if (n >= 10 || !steps[i + 1]) {
    return `${n} ${unit}`;
  }
  const rest = Math.floor((abs - n * size) / steps[i + 1][1]);
  return `${n} ${unit}${rest ? ` ${rest} ${steps[i + 1][0]}` : ''}`;
}

const units = { year: 31557600, yr: 31557600, mon: 2592000, day: 86400 };

/* The seconds of an interval as PostgreSQL writes it: "1 day 02:00:00". */
export function seconds(interval) {
  if (interval === null || interval === undefined) {
    return null;
  }
  let sum = 0;
  for (const [, n, unit] of String(interval).matchAll(/(-?\d+) (year|mon|day)s?/g)) {
    sum += n * units[unit];
  }
  const clock = /(-?)(\d+):(\d+):([\d.]+)/.exec(interval);
  if (clock) {
    const s = clock[2] * 3600 + clock[3] * 60 + Number(clock[4]);
    sum += clock[1] ? -s : s;
  }
  return sum;
}

export function interval(text) {
  return text === null || text === undefined ? '–' : duration(seconds(text));
}

export function millis(time) {
  /* PostgreSQL writes years beyond 9999 with their digits, JavaScript reads them with a sign and six */
  return typeof time === 'number' ? time : Date.parse(String(time).replace(/^\d{5,6}(?=-)/, (year) => `+${year.padStart(6, '0')}`));
}

/* "2026-11-26 04:05:06.789 UTC" */
export function utc(time) {
  const at = new Date(millis(time));
  return Number.isNaN(at.getTime()) ? String(time) : at.toISOString().replace('T', ' ').replace('Z', ' UTC');
}

export function ago(time) {
  const s = (now() - millis(time)) / 1000;
  if (Number.isNaN(s)) {
    return String(time);
  }
  /* without the seconds of minutes */
  const coarse = (t) => duration(t < 60 || t >= 3600 ? t : t - (t % 60));
  return Math.abs(s) < 1 ? 'now' : s > 0 ? `${coarse(Math.floor(s))} ago` : `in ${coarse(Math.ceil(-s))}`;
}

export function plural(n, one, many = `${one}s`) {
  return `${num(n)} ${n === 1 ? one : many}`;
}

/* A LIKE pattern for the messages of a group of errors: "?" stands for any text. */
export function likeOf(pattern) {
  return (pattern ?? '').replace(/[\\%_]/g, '\\$&').replace(/\?/g, '%');
}

/* ---------- links ---------- */

/* link('jobs', {status: 'error'}) -> "#/jobs?status=error"; link(['jobs', id]) */
export function link(path, query) {
  const parts = (Array.isArray(path) ? path : [path]).filter((p) => p !== '').map(encodeURIComponent);
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query || {})) {
    if (value !== undefined && value !== null && value !== '') {
      search.set(name, value);
    }
  }
  const text = search.toString();
  return `#/${parts.join('/')}${text ? `?${text}` : ''}`;
}

/* Changes the filter of the screen that is open, without a new entry of the history. */
export function refine(route, changes) {
  location.replace(link(route.path, { ...route.query, ...changes }));
}

/* ---------- small components ---------- */

const icons = {
  check: 'M3 8.5l3.2 3.2L13 4.8',
  cross: 'M4 4l8 8M12 4l-8 8',
  clock: 'M8 2.2a5.8 5.8 0 100 11.6A5.8 5.8 0 008 2.2zM8 5v3.2l2.2 1.4',
  lock: 'M4 7.5h8v5.7H4zM5.6 7.5V5.3a2.4 2.4 0 014.8 0v2.2',
  redo: 'M12.8 8a4.8 4.8 0 11-1.5-3.5M12.8 2.2v3h-3',
  play: 'M5 3.2l7.5 4.8L5 12.8z',
  pause: 'M5.3 3.2v9.6M10.7 3.2v9.6',
  stop: 'M4 4h8v8H4z',
  skip: 'M3.5 3.5L9 8l-5.5 4.5zM12.3 3.5v9',
  ban: 'M8 2.2a5.8 5.8 0 100 11.6A5.8 5.8 0 008 2.2zM4 4l8 8',
  warn: 'M8 2.5l6 10.8H2zM8 6.5v3.2M8 11.4v.2',
  info: 'M8 2.2a5.8 5.8 0 100 11.6A5.8 5.8 0 008 2.2zM8 7.3v3.7M8 4.9v.2',
  search: 'M7 2.5a4.5 4.5 0 100 9 4.5 4.5 0 000-9zM10.3 10.3l3.4 3.4',
  plus: 'M8 3v10M3 8h10',
  menu: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11',
  right: 'M6 3.5L10.5 8 6 12.5',
  out: 'M6.5 3h-3v10h3M7 8h6.5M11 5.5L13.5 8 11 10.5',
};

export function Icon({ name }) {
  return h('svg', { class: 'icon', viewBox: '0 0 16 16', 'aria-hidden': 'true' }, h('path', { d: icons[name] }));
}

/* tone: ok, warn, bad, accent or none. The word carries the meaning, not the colour. */
export function Badge({ tone, icon, title, children }) {
  return h('span', { class: `badge ${tone || ''}`, title }, icon && h(Icon, { name: icon }), children);
}

const looks = {
  pending: ['', 'clock'], blocked: ['', 'lock'], retry: ['warn', 'redo'], running: ['accent', 'play'],
  completed: ['ok', 'check'], skipped: ['', 'skip'], cancelled: ['', 'ban'], error: ['bad', 'cross'],
  healthy: ['ok', 'check'], degraded: ['warn', 'warn'], unhealthy: ['bad', 'cross'],
  paused: ['warn', 'pause'], stopped: ['bad', 'stop'], failed: ['bad', 'cross'],
  low: ['', 'info'], medium: ['warn', 'warn'], high: ['bad', 'warn'],
  debug: ['', 'info'], info: ['', 'info'], warning: ['warn', 'warn'],
};

/* The status of a job, run, check or alert: colour, icon and word. */
export function Status({ status, children }) {
  const [tone, icon] = looks[status] || ['', 'info'];
  return h(Badge, { tone, icon }, children || status);
}

const ticking = new Set();
setInterval(() => {
  if (document.visibilityState === 'visible') {
    ticking.forEach((t) => t.tick());
  }
}, 1000);

/* A component that is drawn again each second, as far as its text has changed. */
class Ticking extends Component {
  componentDidMount() {
    ticking.add(this);
  }

  componentWillUnmount() {
    ticking.delete(this);
  }

  tick() {
    if (this.text() !== this.drawn) {
      this.forceUpdate();
    }
  }
}

/* "12 min ago", with the exact time in the title. */
export class Time extends Ticking {
  text() {
    return ago(this.props.at);
  }

  render({ at }) {
    if (at === null || at === undefined) {
      return h('span', { class: 'faint' }, '–');
    }
    this.drawn = this.text();
    /* infinity is no time of the browser */
    return Number.isNaN(millis(at)) ? this.drawn
      : h('time', { dateTime: new Date(millis(at)).toISOString(), title: utc(at) }, this.drawn);
  }
}

/* The time since a moment, growing: "12 min". */
export class Since extends Ticking {
  text() {
    return duration(Math.floor(Math.max(0, now() - millis(this.props.at)) / 1000));
  }

  render({ at }) {
    this.drawn = this.text();
    return h('time', { dateTime: new Date(millis(at)).toISOString(), title: `since ${utc(at)}` }, this.drawn);
  }
}

export function Duration({ s, title }) {
  return h('span', { class: 'nobr', title: title || (s === null || s === undefined ? undefined : `${num(s)} s`) }, duration(s));
}

/* A number of the API, {n, exact}: "10,000+" if there are more. */
export function Num({ n, exact = true }) {
  return h('span', { class: 'nobr' }, exact ? num(n) : `${num(n)}+`);
}

export function Button({ icon, tone, children, ...more }) {
  return h('button', { type: 'button', class: tone, ...more }, icon && h(Icon, { name: icon }), children);
}

export function Head({ title, children, about }) {
  return h('header', { class: 'head' },
    h('div', null, h('h1', { tabIndex: -1 }, title), about && h('div', { class: 'about' }, about)),
    children && h('div', { class: 'actions' }, children));
}

/* Names and values: rows [[name, value]]; a value of null or undefined is left out. */
export function Facts({ rows }) {
  return h('dl', { class: 'facts' }, rows.filter(([, value]) => value !== null && value !== undefined && value !== false)
    .map(([name, value]) => h('div', { key: name }, h('dt', null, name), h('dd', null, value))));
}

export function Bar({ used, max, title }) {
  const full = max > 0 ? Math.min(1, used / max) : 0;
  return h('span', { class: `bar ${full >= 1 ? 'full' : ''}`, title },
    h('span', { class: 'fill', style: { width: `${Math.round(full * 100)}%` } }));
}

/* ---------- states ---------- */

export function Loading({ children }) {
  return h('p', { class: 'state loading' }, children || 'Loading …');
}

/* What would fill it is in the children. */
export function Empty({ children }) {
  return h('div', { class: 'state empty' }, children);
}

export function Trouble({ problem, again }) {
  const denied = problem.status === 403;
  return h('div', { class: `trouble ${denied ? 'denied' : ''}`, role: 'alert' },
    h(Icon, { name: denied ? 'lock' : 'warn' }),
    h('div', null,
      h('strong', null, problem.title || 'The page has an error'),
      h('p', null, problem.detail || problem.message),
      problem.more && h('p', null, problem.more),
      problem.hint && h('p', { class: 'hint' }, problem.hint),
      denied && h('p', { class: 'hint' }, 'jobq.grant_access() gives rights to a role.'),
      again && !denied && h(Button, { onClick: again }, 'Try again')));
}

/* Old data is shown; the server does not answer. */
export function Stale({ at, problem, again }) {
  return h('div', { class: 'stale', role: 'status' }, h(Icon, { name: 'warn' }),
    h('span', null, problem.status === 0 ? 'No answer from the server' : problem.detail || problem.title,
      at ? [': what you see is ', h(Since, { at: at + clockSkew }), ' old'] : null, '. It is asked again by itself.'),
    again && h(Button, { onClick: again }, 'Ask now'));
}

/* A list that is empty, although not all was searched. */
export function Searched({ at }) {
  return h('p', null, 'None found; searched back to ', h(Time, { at }), ' only.');
}

/*
 * A field whose value others keep: it is given to take(text) when the field is left.  What is being
 * typed stays while the screen is drawn again.
 */
export class Typed extends Component {
  render({ value, take, ...more }) {
    return h('input', {
      ...more, value: this.text ?? value,
      onInput: (event) => {
        this.text = event.target.value;
      },
      onChange: (event) => {
        this.text = undefined;
        take(event.target.value.trim());
      },
    });
  }
}

/*
 * Data of a GET in all its states: {api, path, query, every (ms, 0: once),
 * empty (an element for a list without items), children: (data, again) => element}.
 */
export class Remote extends Component {
  constructor(props) {
    super(props);
    this.state = { data: undefined, problem: null, at: 0 };
  }

  componentDidMount() {
    this.watch();
  }

  componentDidUpdate() {
    if (this.asked !== this.wanted()) {
      this.watcher.stop();
      this.setState({ data: undefined, problem: null });
      this.watch();
    }
  }

  componentWillUnmount() {
    this.watcher.stop();
  }

  wanted() {
    return JSON.stringify([this.props.path, this.props.query, this.props.every]);
  }

  watch() {
    const { api, path, query, every = 0 } = this.props;
    this.asked = this.wanted();
    this.watcher = api.watch(path, query, every, (state) => this.setState(state));
    this.again = () => this.watcher.again();
  }

  render({ children, empty }, { data, problem, at }) {
    const draw = Array.isArray(children) ? children[0] : children;
    if (data === undefined) {
      return problem ? h(Trouble, { problem, again: this.again }) : h(Loading);
    }
    const note = problem && (problem.passing ? h(Stale, { at, problem, again: this.again }) : h(Trouble, { problem, again: this.again }));
    return h(Fragment, null, note, empty && data.items?.length === 0 ? h(Empty, null, empty) : draw(data, this.again));
  }
}

/* ---------- what happens ---------- */

let saidTimer = 0;

/* A short message at the edge of the page, also for screen readers. */
export function say(text) {
  const place = document.getElementById('said');
  place.textContent = text;
  place.className = 'shown';
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => {
    place.className = '';
  }, 6000);
}

export function problemText(problem) {
  return [problem.detail || problem.message, problem.hint].filter(Boolean).join(' ');
}

/* Runs an action of a button: says done, or the problem. True: it worked. */
export async function act(run, done) {
  try {
    await run();
    if (done) {
      say(done);
    }
    return true;
  } catch (problem) {
    say(problemText(problem));
    return false;
  }
}

/* Opens a dialog: see form.js. */
export async function ask(spec) {
  return (await import('./form.js')).ask(spec);
}

export async function copy(text, what) {
  await act(() => navigator.clipboard.writeText(text), `${what} copied`);
}

/* ---------- keys ---------- */

const handlers = [];

/* Registers take(key, event) for keys outside of fields; true: it was used. Returns what ends that. */
export function onKey(take) {
  handlers.unshift(take);
  return () => handlers.splice(handlers.indexOf(take), 1);
}

export function takeKey(event) {
  return handlers.some((take) => take(event.key, event));
}
