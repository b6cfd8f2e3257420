/*
 * A job: why it waits, its times to scale, its tries, its data, and actions.
 *
 * While it lives, it is read again every two seconds, and seldom afterwards: a
 * retry may take it up. Events are read again when its row has changed. They
 * are as complete as options.events of its type wants: without them the times
 * are those of the row.
 */
import { act, ask, Badge, Button, Component, copy, Duration, duration, Facts, Fragment, h, Head, interval, link, Loading, millis, now, num, plural, say, Since, Stale, Status,
  Time, Trouble, utc } from './ui.js';
import { writeJson } from './api.js';
import { Data, Times, Tries, spansOf, triesOf } from './job_parts.js';

export const title = 'Job';

const LIVE_MS = 2000;
const ENDED_MS = 20000;
const EVENTS_MS = 10000;
const MAX_EVENTS = 2000;
const LIVE = ['pending', 'blocked', 'retry', 'running'];
const ENDED = ['completed', 'skipped', 'cancelled', 'error'];

/* A step that joins, sleeps or waits for an event has no type. */
const nameOf = (job) => job.job_type ?? `step ${job.task_key}`;

/* ---------- copies ---------- */

function sqlText(value) {
  return `'${String(value).replace(/'/g, "''")}'`;
}

/* The call that enqueues a job like this one. */
export function asSql(job) {
  const more = [
    ['priority', job.priority], ['max_attempts', job.max_attempts], ['timeout', job.timeout && sqlText(job.timeout)], ['tenant', job.tenant !== null && sqlText(job.tenant)],
    ['unique_key', job.unique_key && sqlText(job.unique_key)], ['concurrency_key', job.concurrency_key && sqlText(job.concurrency_key)],
    ['metadata', job.metadata !== null && sqlText(writeJson(job.metadata))],
  ].filter(([, value]) => value !== null && value !== undefined && value !== false && value !== '');
  const given = [sqlText(job.job_type), sqlText(writeJson(job.payload)), ...more.map(([name, value]) => `${name} => ${value}`)];
  return `SELECT jobq.enqueue(${given.join(', ')});`;
}

function shellText(value) {
  return `'${value.replace(/'/g, "'\\''")}'`;
}

/* The same as a request; curl asks for the password. */
export function asCurl(job, user, origin) {
  const body = {};
  for (const name of ['job_type', 'payload', 'priority', 'max_attempts', 'timeout', 'tenant', 'unique_key', 'concurrency_key', 'metadata']) {
    if (job[name] !== null && job[name] !== undefined) {
      body[name] = job[name];
    }
  }
  return `curl -u ${shellText(user)} -H 'Content-Type: application/json' -d ${shellText(writeJson(body))} ${shellText(`${origin}/api/v1/jobs`)}`;
}

/* ---------- why it does not start ---------- */

/* holder: a job, or the name of a limit or signal. */
function Holder({ reason }) {
  const { holder, code } = reason;
  if (!holder) {
    return null;
  }
  const place = code === 'signal' ? link('rules') : code === 'shared_limit' ? link('limits') : /^[0-9a-f-]{36}$/.test(holder) ? link(['jobs', holder]) : null;
  return h('span', null, ' Held by ', place ? h('a', { href: place }, holder) : h('b', null, String(holder)), '.');
}

function Why({ why, job }) {
  if (!why || !LIVE.includes(job.status) || job.status === 'running') {
    return null;
  }
  const { reasons, ahead, start_in_s: startIn } = why;
  return h('section', { class: 'panel why', 'aria-label': 'Why it does not start' },
    reasons.length === 0
      ? h('p', null, h('strong', null, 'Nothing holds it: '), 'it starts in a moment.')
      : h(Fragment, null, h('h2', null, 'Why it does not start'), h('ul', { class: 'reasons' }, reasons.map((r) => h('li', { key: r.code + r.message + (r.holder ?? '') },
        h(Badge, { tone: 'warn', icon: 'clock' }, r.code.replace(/_/g, ' ')), h('span', { class: 'message' }, r.message,
          r.until && h(Fragment, null, ', until ', h('b', { title: utc(r.until) }, utc(r.until).slice(11, 19)), ' UTC (', h(Time, { at: r.until }), ')'), '.', h(Holder, { reason: r })))))),
    (ahead.n > 0 || startIn !== null) && h('p', { class: 'faint' },
      ahead.n > 0 && h('span', null, h('b', null, `${num(ahead.n)}${ahead.exact ? '' : '+'}`), ahead.n === 1 ? ' job goes before it' : ' jobs go before it'),
      ahead.n > 0 && startIn !== null && '; ', startIn !== null && h('span', null, 'starts in about ', h('b', null, duration(startIn))), '.'));
}

/* ---------- actions ---------- */

const changes = [
  { name: 'payload', label: 'Payload', type: 'json', rows: 9 },
  { name: 'priority', label: 'Priority', type: 'int', help: '-100 to 100, higher runs first' },
  { name: 'scheduled_for', label: 'Not before', type: 'time', help: 'UTC' },
  { name: 'max_attempts', label: 'Attempts at most', type: 'int' },
  { name: 'timeout', label: 'Timeout of an attempt', type: 'interval', help: "like 5 min; 0: no limit" },
];

/* ---------- the screen ---------- */

export default class Job extends Component {
  constructor(props) {
    super(props);
    this.state = { job: null, problem: null, why: null, events: null, eventsProblem: null, at: 0 };
  }

  componentDidMount() {
    this.watch(LIVE_MS);
    /* while it lives, its watch is enough */
    this.look = () => this.every === 0 && document.visibilityState === 'visible' && this.watch(0);
    this.pulse = setInterval(this.look, ENDED_MS);
    document.addEventListener('visibilitychange', this.look);
  }

  componentWillUnmount() {
    this.gone = true;
    clearInterval(this.pulse);
    document.removeEventListener('visibilitychange', this.look);
    this.watcher?.stop();
  }

  watch(every) {
    const { api, route } = this.props;
    this.every = every;
    this.watcher?.stop();
    this.watcher = api.watch(['jobs', route.id], null, every, ({ data, problem, at }) => this.take(data, problem, at));
  }

  take(job, problem, at) {
    if (this.gone) {
      return;
    }
    const version = job && JSON.stringify([job.status, job.runs, job.attempts, job.updated_at]);
    this.setState({ job: job || this.state.job, problem, at });
    if (!job || problem) {
      return;
    }
    /* what a running attempt logs does not change its row */
    if (version !== this.version || (job.status === 'running' && Date.now() - this.eventsAt > EVENTS_MS)) {
      this.version = version;
      this.readEvents();
    }
    if (LIVE.includes(job.status) && job.status !== 'running') {
      this.readWhy();
    }
    if (ENDED.includes(job.status) && this.every) {
      this.every = 0;
      this.watcher.stop();
    } else if (LIVE.includes(job.status) && !this.every) {
      this.watch(LIVE_MS);
    }
  }

  /* Reads the row at once, after an action. */
  again() {
    if (this.gone) {
      return;
    }
    this.version = null;
    this.watch(LIVE_MS);
  }

  async readWhy() {
    try {
      const why = await this.props.api.get(['jobs', this.props.route.id, 'why']);
      this.gone || this.setState({ why });
    } catch (problem) {
      this.gone || this.setState({ why: null });
    }
  }

  async readEvents() {
    const { api, route } = this.props;
    const mine = {};
    this.reading = mine;
    this.eventsAt = Date.now();
    try {
      const events = [];
      let cursor;
      do {
        const { items, next } = await api.get(['jobs', route.id, 'events'], { limit: 200, cursor });
        events.push(...items);
        cursor = next;
      } while (cursor && events.length < MAX_EVENTS);
      /* an older answer may come later */
      this.gone || this.reading !== mine || this.setState({ events, eventsProblem: null, cut: Boolean(cursor) });
    } catch (problem) {
      this.gone || this.reading !== mine || this.setState({ events: this.state.events || [], eventsProblem: problem });
    }
  }

  async cancel() {
    const { api, route } = this.props;
    const { job } = this.state;
    const given = await ask({
      title: `Cancel this job, ${nameOf(job)}`, submit: 'Cancel the job', tone: 'danger',
      text: job.status === 'running' ? 'It runs: the attempt is stopped and its changes are rolled back.' : 'It will not run.',
      fields: [{ name: 'reason', label: 'Reason', help: 'the job keeps it as its error' }],
      run: (values) => api.post(['jobs', route.id, 'cancel'], values),
    });
    if (given) {
      say('Cancelled');
      this.again();
    }
  }

  async retry() {
    const { api, route } = this.props;
    if (await act(() => api.post(['jobs', route.id, 'retry']), 'It runs again')) {
      this.again();
    }
  }

  async rerun() {
    const { api, route } = this.props;
    const { job } = this.state;
    const made = await ask({
      title: 'Run again as a new job', submit: 'Enqueue', text: 'A new job like this one, with this payload.', values: { payload: job.payload },
      fields: [{ name: 'payload', label: 'Payload', type: 'json', rows: 10 }],
      run: (values, changed) => api.post(['jobs', route.id, 'rerun'], 'payload' in changed ? { payload: changed.payload } : {}),
    });
    if (made?.id) {
      location.assign(link(['jobs', made.id]));
    }
  }

  async change() {
    const { api, route } = this.props;
    const { job } = this.state;
    const done = await ask({
      title: 'Change the job', submit: 'Change', fields: changes, values: job,
      run: (values, changed) => {
        const given = Object.fromEntries(Object.entries(changed).filter(([, value]) => value !== null));
        return Object.keys(given).length ? api.patch(['jobs', route.id], given) : {};
      },
    });
    if (done) {
      say('Changed');
      this.again();
    }
  }

  buttons() {
    const { api, session } = this.props;
    const { job } = this.state;
    const admin = api.can('admin');
    const live = LIVE.includes(job.status);
    const origin = location.origin + new URL('..', import.meta.url).pathname.replace(/\/$/, '');
    return [
      admin && ['error', 'cancelled', 'skipped'].includes(job.status) && h(Button, { class: job.status === 'error' ? 'primary' : '', icon: 'redo', onClick: () => this.retry() }, 'Retry'),
      admin && job.status === 'retry' && h(Button, { icon: 'redo', onClick: () => this.retry() }, 'Retry now'),
      admin && live && job.status !== 'running' && h(Button, { onClick: () => this.change() }, 'Change'),
      admin && ENDED.includes(job.status) && h(Button, { icon: 'play', onClick: () => this.rerun() }, 'Run again as new'),
      admin && live && h(Button, { class: 'danger', icon: 'ban', onClick: () => this.cancel() }, 'Cancel'),
      job.job_type !== null && h(Button, { class: 'quiet', title: 'The call that enqueues a job like this', onClick: () => copy(asSql(job), 'SQL') }, 'Copy as SQL'),
      job.job_type !== null && h(Button, { class: 'quiet', title: 'The request that enqueues a job like this', onClick: () => copy(asCurl(job, session.user, origin), 'curl command') }, 'as curl'),
    ];
  }

  facts(job) {
    const run = job.workflow_id;
    return h('section', null, h(Facts, { rows: [
      ['Type', job.job_type !== null && h('a', { href: link(['types', job.job_type]) }, job.job_type)],
      ['Tenant', job.tenant !== null && h('a', { href: link('jobs', { tenant: job.tenant, no_tenant: job.tenant === '' ? 1 : undefined }) }, job.tenant || '(empty)')],
      ['Attempts', h(Fragment, null, `${job.attempts} of ${job.max_attempts}`, job.runs !== job.attempts && h('span', { class: 'faint' }, `, ${plural(job.runs, 'run')} in all`))],
      ['Priority', num(job.priority)],
      ['Created', h(Time, { at: job.created_at })],
      ['Due', !job.completed_at && h(Time, { at: job.scheduled_for })],
      ['Started', job.started_at && h(Time, { at: job.started_at })],
      ['Ended', job.completed_at && h(Time, { at: job.completed_at })],
      [job.status === 'running' ? 'Runs for' : 'Last attempt took', job.started_at && (job.status === 'running' ? h(Since, { at: job.started_at })
        : job.completed_at && h(Duration, { s: (millis(job.completed_at) - millis(job.started_at)) / 1000 }))],
      ['Progress', job.progress !== null && h('span', null, h('progress', { value: job.progress, max: 100, 'aria-label': 'Progress' }), ` ${num(Number(job.progress))}%`)],
      ['Timeout', job.timeout && interval(job.timeout)],
      ['Worker', job.worker], ['Node', job.node],
      ['Lease ends', job.lease_expires_at && h(Time, { at: job.lease_expires_at })],
      ['Unique key', job.unique_key && h('span', { class: 'code' }, job.unique_key)],
      ['Concurrency key', job.concurrency_key && h('span', { class: 'code' }, job.concurrency_key)],
      ['Parent', job.parent_id && h('a', { class: 'code', href: link(['jobs', job.parent_id]) }, job.parent_id)],
      ['Run of a workflow', run && h('a', { class: 'code', href: link(['runs', run]) }, run === job.id ? 'this job' : run)],
      ['Task', job.task_key],
      ['Waits for', job.after?.length > 0 && job.after.map((id) => h('div', { key: id }, h('a', { class: 'code', href: link(['jobs', id]) }, id)))],
      ['Rule', job.after_rule],
    ] }));
  }

  body() {
    const { job, why, events, eventsProblem, cut } = this.state;
    const tries = triesOf(job, events || []);
    return h(Fragment, null,
      h(Why, { why, job }),
      job.error_msg && h('section', { class: `panel error ${job.status}`, 'aria-label': 'Error' },
        h('p', { class: 'row' }, h('strong', null, job.status === 'cancelled' ? 'Cancelled: ' : job.status === 'error' ? 'Failed for good' : 'Last error'), job.error_code && h('code', null, job.error_code)),
        h('pre', { class: 'message' }, job.error_msg)),
      this.facts(job),
      h('section', null, h('h2', null, 'Times'), events ? h(Times, { spans: spansOf(job, tries, now()), live: LIVE.includes(job.status) }) : h(Loading)),
      h('section', null, h('h2', null, 'Tries'), events ? h(Tries, { job, tries, events, cut }) : h(Loading), eventsProblem && h(Trouble, { problem: eventsProblem })),
      h('div', { class: 'grid wide-grid' },
        h(Data, { name: 'Payload', value: job.payload, id: job.id }),
        (job.result !== null || job.status === 'completed') && h(Data, { name: 'Result', value: job.result, id: job.id }),
        job.progress_data !== null && h(Data, { name: 'Checkpoint', value: job.progress_data, id: job.id }),
        job.error_details !== null && h(Data, { name: 'Error details', value: job.error_details, id: job.id }),
        job.metadata !== null && h(Data, { name: 'Metadata', value: job.metadata, id: job.id })));
  }

  componentDidUpdate() {
    const { job } = this.state;
    if (job) {
      document.title = `${nameOf(job)} ${job.status} · jobq`;
    }
  }

  render({ route, api }, { job, problem, at }) {
    if (!job) {
      return h(Fragment, null, h(Head, { title }), problem
        ? h(Trouble, { problem: problem.status === 404 ? { title: 'No such job', detail: `There is no job ${route.id}, or your role does not see it. Finished jobs stay for the time of their type.` } : problem, again: () => this.again() })
        : h(Loading));
    }
    return h(Fragment, null,
      h(Head, { title: h('span', { class: 'row' }, nameOf(job), h(Status, { status: job.status })),
        about: h('span', { class: 'row' }, h('span', { class: 'code' }, job.id), h(Button, { class: 'small quiet', onClick: () => copy(job.id, 'Id') }, 'Copy')) }, this.buttons()),
      problem && (problem.passing ? h(Stale, { problem, at, again: () => this.again() })
        : h(Trouble, { problem: problem.status === 404 ? { title: 'The job is gone', detail: 'What you see was its last state.' } : problem })),
      this.body());
  }
}
