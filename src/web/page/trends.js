/*
 * The plots of the overview: the series of the last hour or day, with marks
 * for alerts and management calls. Marks are read after the first plot.
 */
import { Button, Component, Loading, Trouble, duration, h, link, short } from './ui.js';
import { quantile } from './overview.js';
import { Plot } from './plot.js';

const STEPS = {
  hour: { step: '10 seconds', name: '1 h', seconds: 3600, every: 20000 },
  day: { step: '2 minutes', name: '24 h', seconds: 86400, every: 60000 },
};
const MARKS_MS = 60000;
const MAX_MARKS = 100;

/* Sums the rows of each moment; rates are per second. */
export function collect(items) {
  const moments = new Map();
  for (const row of items) {
    const at = Date.parse(row.until) / 1000;
    const s = Math.max(1, at - Date.parse(row.since) / 1000);
    const m = moments.get(at) || { s, enqueued: 0, ended: 0, failed: 0, died: 0, wait: [] };
    m.enqueued += row.enqueued;
    m.ended += row.completed;
    m.failed += row.failed;
    m.died += row.died;
    (row.wait_buckets || []).forEach((n, i) => {
      m.wait[i] = (m.wait[i] || 0) + n;
    });
    moments.set(at, m);
  }
  const times = [...moments.keys()].sort((a, b) => a - b);
  const column = (value) => times.map((t) => value(moments.get(t)));
  return {
    times,
    in: column((m) => m.enqueued / m.s), out: column((m) => m.ended / m.s),
    failed: column((m) => m.failed / m.s), died: column((m) => m.died / m.s),
    p95: column((m) => quantile(m.wait, 0.95)),
  };
}

/* Calls of the audit are those for many jobs, types, and so on. */
export function marksOf(alerts, audit) {
  return [
    ...alerts.map((a) => ({ at: Date.parse(a.ts) / 1000, text: a.title, tone: a.severity === 'high' || a.severity === 'critical' ? 'bad' : 'warn' })),
    ...audit.map((a) => ({ at: Date.parse(a.ts) / 1000, text: [a.action, a.object].filter(Boolean).join(' ') })),
  ].sort((a, b) => a.at - b.at);
}

export class Trends extends Component {
  constructor(props) {
    super(props);
    this.state = { span: 'hour', series: null, problem: null, marks: [] };
  }

  componentDidMount() {
    this.watch('hour');
  }

  componentWillUnmount() {
    this.gone = true;
    this.watcher.stop();
    clearTimeout(this.timer);
  }

  watch(span) {
    const { api } = this.props;
    this.watcher?.stop();
    this.setState({ span });
    this.watcher = api.watch('series', { step: STEPS[span].step }, STEPS[span].every, ({ data, problem }) => {
      this.setState({ series: data ? collect(data.items) : this.state.series, problem, shown: span });
      if (data && this.marked !== span) {
        this.marked = span;
        this.readMarks();
      }
    });
  }

  async readMarks() {
    clearTimeout(this.timer);
    const { api } = this.props;
    const { span } = this.state;
    const since = new Date(Date.now() + api.skew - STEPS[span].seconds * 1000).toISOString();
    const items = (path, more) => api.get(path, { since, limit: MAX_MARKS, ...more }).then((reply) => reply.items, () => []);
    if (document.visibilityState === 'visible') {
      const [alerts, audit] = await Promise.all([items('alerts'), items('audit', { many: true })]);
      if (this.gone || span !== this.state.span) {
        return;
      }
      this.setState({ marks: marksOf(alerts, audit) });
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.readMarks(), MARKS_MS);
  }

  render(props, { span, shown, series, problem, marks }) {
    if (!series) {
      return problem ? h(Trouble, { problem }) : h(Loading);
    }
    const plot = (title, lines, format, unit) => h(Plot, { key: title, title, times: series.times, series: lines, format, unit, marks, span: STEPS[shown].seconds });
    return h('div', null,
      h('div', { class: 'section-head' }, h('h2', null, 'History'),
        h('div', { class: 'row', role: 'group', 'aria-label': 'Time that plots show' }, Object.entries(STEPS).map(([key, s]) => h(Button, {
          key, class: 'small toggle', 'aria-pressed': String(key === span), onClick: () => this.watch(key),
        }, s.name))),
        marks.length > 0 && h('span', { class: 'faint' }, 'dashed lines: ', h('a', { href: link('alerts') }, 'alerts'), ' and ', h('a', { href: link('audit') }, 'management calls'))),
      h('div', { class: 'plots' },
        plot('Jobs per second', [{ label: 'in', color: '--muted', values: series.in }, { label: 'completed', color: '--accent', values: series.out, fill: true }], short),
        plot('Failures per second', [{ label: 'failed', color: '--warn', values: series.failed, fill: true }, { label: 'dead', color: '--bad', values: series.died }], short),
        plot('Wait, 95% of starts within', [{ label: 'wait', color: '--accent', values: series.p95, fill: true }], duration, 's')));
  }
}
