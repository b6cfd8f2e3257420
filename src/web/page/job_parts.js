/*
 * Parts of the page of a job: its times to scale, its tries, its data.
 */
import { Button, Component, Duration, Fragment, Status, Time, bytes, copy, duration, h, millis, plural, utc } from './ui.js';
import { writeJson } from './api.js';

/* ---------- tries and spans, from events and the row ---------- */

const ENDS = ['failed', 'completed', 'skipped', 'cancelled', 'snoozed', 'released'];

/*
 * The tries of a job: [{n, attempt, from, to, outcome, message, code, stderr,
 * worker, took}], the oldest first; times in ms. A job without events of
 * starts has at most the last one, from its row.
 */
export function triesOf(job, events) {
  const tries = [];
  for (const e of events) {
    const last = tries[tries.length - 1];
    const open = last && last.to === null ? last : null;
    if (e.type === 'started') {
      tries.push({ attempt: e.attempt, from: millis(e.ts), to: null, outcome: null, worker: e.data?.worker ?? null });
    } else if (ENDS.includes(e.type) && (e.attempt > 0 || open)) {
      let one = open && open.attempt === e.attempt ? open : null;
      if (!one && e.data?.duration_ms === undefined && e.type !== 'failed') {
        continue;
      }
      if (!one) {
        one = { attempt: e.attempt, from: millis(e.ts) - (e.data?.duration_ms ?? 0), to: null, outcome: null, worker: null };
        tries.push(one);
      }
      Object.assign(one, {
        to: millis(e.ts), outcome: e.type, message: e.data?.error ?? e.message, code: e.data?.code ?? null, stderr: e.data?.stderr ?? null,
        worker: e.data?.worker ?? one.worker, took: e.data?.duration_ms ?? null,
      });
    }
  }
  const last = tries[tries.length - 1];
  if (job.started_at && (!last || millis(job.started_at) > last.from + 1)) {
    const ended = job.completed_at || (job.status === 'retry' ? null : undefined);
    const outcomes = { error: 'failed', retry: 'failed' };
    tries.push({
      attempt: job.attempts, from: millis(job.started_at), to: job.completed_at ? millis(job.completed_at) : job.status === 'running' ? null : millis(job.started_at),
      outcome: job.status === 'running' ? null : outcomes[job.status] ?? job.status, message: job.error_msg, code: job.error_code, stderr: job.error_details?.stderr ?? null,
      worker: job.worker, took: null, row: ended === null,
    });
  }
  if (last && last.to === null && job.status !== 'running') {
    last.to = millis(job.completed_at ?? job.updated_at);
    last.outcome ??= job.status === 'error' ? 'failed' : job.status;
  }
  return tries.map((t, i) => ({ ...t, n: i + 1 }));
}

/* What the job did when: [{kind: waits, runs, backoff; from, to (ms), text}]. */
export function spansOf(job, tries, present) {
  const spans = [];
  const end = job.completed_at ? millis(job.completed_at) : present;
  let at = millis(job.created_at);
  for (const one of tries) {
    if (one.from > at) {
      spans.push({ kind: spans.length ? 'backoff' : 'waits', from: at, to: one.from });
    }
    const to = one.to ?? present;
    spans.push({ kind: one.outcome === 'failed' ? 'failed' : 'runs', from: one.from, to, n: one.n });
    at = Math.max(at, to);
  }
  if (end > at) {
    spans.push({ kind: spans.length ? 'backoff' : 'waits', from: at, to: end });
  }
  return spans;
}

/* ---------- times to scale ---------- */

const kinds = { waits: 'waits', backoff: 'waits for the next try', runs: 'runs', failed: 'runs and fails' };

export function Times({ spans, live }) {
  if (!spans.length) {
    return h('p', { class: 'faint' }, 'Nothing has happened yet.');
  }
  const from = spans[0].from;
  const to = spans[spans.length - 1].to;
  const all = Math.max(1, to - from);
  const sums = {};
  for (const s of spans) {
    sums[s.kind] = (sums[s.kind] || 0) + (s.to - s.from) / 1000;
  }
  const words = Object.entries(sums).map(([kind, s]) => `${kinds[kind]} ${duration(s)}`);
  return h('div', { class: 'times' },
    h('div', { class: 'track', role: 'img', 'aria-label': `In ${duration(all / 1000)}: ${words.join(', ')}` }, spans.map((s, i) => h('span', {
      key: i, class: `span ${s.kind}`, title: `${s.n ? `Try ${s.n} ` : ''}${kinds[s.kind]} ${duration((s.to - s.from) / 1000)}, from ${utc(s.from)}`,
      style: { left: `min(${(100 * (s.from - from)) / all}%, 100% - 3px)`, width: `${(100 * (s.to - s.from)) / all}%` },
    }))),
    h('div', { class: 'scale faint' }, h('span', null, utc(from).slice(0, 19)), h('span', null, duration(all / 1000)), h('span', null, live ? 'now' : utc(to).slice(0, 19))),
    h('div', { class: 'legend' }, Object.entries(sums).map(([kind, s]) => h('span', { key: kind, class: 'entry' }, h('span', { class: `box ${kind}` }), kinds[kind], ' ', h('b', null, duration(s))))));
}

/* ---------- tries ---------- */

function Outcome({ one }) {
  return h(Status, { status: { snoozed: 'pending', released: 'pending', failed: 'error' }[one.outcome] ?? one.outcome ?? 'running' }, one.outcome ?? 'runs');
}

function One({ one }) {
  return h('li', { class: 'try' },
    h('div', { class: 'row' }, h('b', null, `Try ${one.n}`), h(Outcome, { one }),
      h('span', { class: 'faint' }, h(Time, { at: one.from }), one.to !== null && !one.row && h(Fragment, null, ', took ', h(Duration, { s: (one.took ?? one.to - one.from) / 1000 })), one.worker && `, ${one.worker}`),
      one.code && h('code', null, one.code)),
    one.message && one.outcome !== 'completed' && h('pre', { class: 'message' }, one.message),
    one.stderr && h('details', null, h('summary', null, 'stderr, ', bytes(new Blob([one.stderr]).size)), h('pre', { class: 'block' }, one.stderr)));
}

function Events({ events, cut }) {
  return h('details', null, h('summary', null, `${plural(events.length, 'event')}${cut ? ', the first ones' : ''}`),
    h('div', { class: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'Events' }, h('table', { class: 'rows compact' },
      h('thead', null, h('tr', null, ['Time (UTC)', 'Event', 'Attempt', 'Source', 'Message', 'Data'].map((t) => h('th', { key: t, scope: 'col' }, t)))),
      h('tbody', null, events.map((e) => h('tr', { key: e.id }, h('td', { class: 'nobr' }, utc(e.ts).slice(0, 23)), h('td', { class: e.level === 'error' ? 'bad' : e.level === 'warning' ? 'warn' : '' }, e.type),
        h('td', { class: 'n' }, e.attempt), h('td', null, e.source), h('td', null, e.message), h('td', { class: 'code' }, e.data === null ? '' : writeJson(e.data))))))));
}

export function Tries({ job, tries, events, cut }) {
  return h(Fragment, null,
    tries.length ? h('ol', { class: 'tries', reversed: true }, [...tries].reverse().map((one) => h(One, { key: one.n, one })))
      : h('p', { class: 'faint' }, job.started_at ? 'Its events are gone.' : 'It has not started yet.'),
    tries.length < job.runs && h('p', { class: 'faint' }, `${job.runs - tries.length} earlier ones left no event: options.events of the type says which are written.`),
    events.length > 0 && h(Events, { events, cut }));
}

/* ---------- payload, result ---------- */

const FOLDED = 65536;

function save(text, name) {
  const at = URL.createObjectURL(new Blob([text], { type: 'text/plain' }));
  Object.assign(document.createElement('a'), { href: at, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(at), 10000);
}

/* A JSON value; above 64 kB its beginning, and all of it on demand. */
export class Data extends Component {
  constructor(props) {
    super(props);
    this.state = { all: false };
  }

  render({ name, value, id }, { all }) {
    if (this.of !== value) {
      this.of = value;
      this.text = typeof value === 'string' ? value : writeJson(value, 2);
    }
    const { text } = this;
    const folded = text.length > FOLDED && !all;
    return h('section', null,
      h('div', { class: 'section-head' }, h('h2', null, name), h('span', { class: 'faint' }, bytes(new Blob([text]).size)),
        h(Button, { class: 'small quiet', onClick: () => copy(text, name), 'aria-label': `Copy ${name}` }, 'Copy'),
        h(Button, { class: 'small quiet', 'aria-label': `Download ${name}`, onClick: () => save(text, `${id}-${name.toLowerCase().replace(' ', '-')}.txt`) }, 'Download')),
      h('pre', { class: 'block', tabIndex: 0, 'aria-label': name, role: 'region' }, folded ? `${text.slice(0, 4000)}\n…` : text),
      folded && h(Button, { class: 'small', onClick: () => this.setState({ all: true }) }, `Show all ${bytes(text.length)}`));
  }
}
