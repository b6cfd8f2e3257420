/*
 * A plot over time, drawn by uPlot, with its numbers in a table.
 *
 * Colours are those of style.css, read again when the scheme changes. Marks
 * are vertical lines for what people and alerts did at that time.
 */
import uPlot from './vendor/uplot.js';
import { Component, createRef, h, num, utc } from './ui.js';

const HEIGHT = 150;
const SYNC = uPlot.sync('time');
const dark = matchMedia('(prefers-color-scheme: dark)');
const forced = matchMedia('(forced-colors: active)');

function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function faded(color) {
  return /^#[0-9a-f]{6}$/i.test(color) ? `${color}22` : undefined;
}

/* Steps of an axis of durations. */
const DURATIONS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400,
  28800, 43200, 86400, 172800, 604800];
const font = '11px system-ui, sans-serif';

/*
 * {title, times: [s], series: [{label, color: '--accent', values, fill}],
 * format (of a value), unit: 's' for durations, marks: [{at (s), text, tone}],
 * span: the seconds that the x axis shows at least, height}
 */
export class Plot extends Component {
  constructor(props) {
    super(props);
    this.place = createRef();
    this.state = { at: null, open: false };
    this.redraw = () => this.draw();
  }

  componentDidMount() {
    this.draw();
    this.sizes = new ResizeObserver(() => {
      const { clientWidth: width } = this.place.current;
      if (this.plot && width && width !== this.plot.width) {
        this.plot.setSize({ width, height: this.props.height || HEIGHT });
      }
    });
    this.sizes.observe(this.place.current);
    dark.addEventListener('change', this.redraw);
    forced.addEventListener('change', this.redraw);
  }

  componentDidUpdate(before) {
    if (before.times !== this.props.times || before.series.length !== this.props.series.length) {
      if (before.series.length === this.props.series.length && this.plot) {
        this.plot.setData(this.data());
      } else {
        this.draw();
      }
    } else if (before.marks !== this.props.marks) {
      this.plot?.redraw(false);
    }
  }

  componentWillUnmount() {
    this.sizes.disconnect();
    dark.removeEventListener('change', this.redraw);
    forced.removeEventListener('change', this.redraw);
    this.plot?.destroy();
  }

  data() {
    return [this.props.times, ...this.props.series.map((s) => s.values)];
  }

  draw() {
    const { series, format = num, unit, height = HEIGHT } = this.props;
    const [text, line] = [token('--muted'), token('--line')];
    this.plot?.destroy();
    this.plot = new uPlot({
      width: this.place.current.clientWidth || 300, height, legend: { show: false },
      padding: [8, 8, 0, 0],
      cursor: { sync: { key: SYNC.key, setSeries: false }, y: false, points: { size: 6 }, drag: { x: false, y: false } },
      scales: { x: { range: (u, min, max) => [Math.min(min, max - (this.props.span || 0)), max] }, y: { range: (u, min, max) => [0, max > 0 ? max * 1.08 : 1] } },
      series: [{}, ...series.map((s) => ({
        label: s.label, stroke: token(s.color), width: 1.5, points: { show: false }, spanGaps: false,
        fill: s.fill ? faded(token(s.color)) : undefined, dash: s.dash,
      }))],
      axes: [
        { stroke: text, font, size: 24, gap: 4, grid: { show: false }, ticks: { stroke: line, size: 4 },
          values: (u, splits) => splits.map((s) => new Date(s * 1000).toISOString().slice(11, 16)), space: 60 },
        { stroke: text, font, size: 48, gap: 4, grid: { stroke: line, width: 1 }, ticks: { show: false },
          values: (u, splits) => splits.map((v) => format(v)), space: 34, ...(unit === 's' ? { incrs: DURATIONS } : {}) },
      ],
      hooks: {
        draw: [(u) => this.drawMarks(u)],
        setCursor: [(u) => this.setState({ at: u.cursor.idx ?? null })],
      },
    }, this.data(), this.place.current);
    this.plot.root.setAttribute('aria-hidden', 'true');
  }

  /* Marks too close to be told apart become one. */
  groups() {
    const { times, marks = [] } = this.props;
    const reach = (times[times.length - 1] - times[0]) / 80;
    const groups = [];
    for (const mark of marks) {
      const last = groups[groups.length - 1];
      if (last && mark.at - last.from <= reach) {
        last.marks.push(mark);
        last.tone = last.tone === 'bad' || mark.tone === 'bad' ? 'bad' : last.tone || mark.tone;
      } else {
        groups.push({ at: mark.at, from: mark.at, tone: mark.tone, marks: [mark] });
      }
    }
    return groups;
  }

  drawMarks(u) {
    const { ctx, bbox } = u;
    ctx.save();
    for (const mark of this.groups()) {
      const x = Math.round(u.valToPos(mark.at, 'x', true)) + 0.5;
      if (x >= bbox.left && x <= bbox.left + bbox.width) {
        ctx.strokeStyle = ctx.fillStyle = token(mark.tone === 'bad' ? '--bad' : mark.tone === 'warn' ? '--warn' : '--muted');
        ctx.lineWidth = devicePixelRatio;
        ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        ctx.beginPath();
        ctx.arc(x, bbox.top, 3 * devicePixelRatio, 0, 2 * Math.PI);
        ctx.fill();
      }
    }
    ctx.restore();
  }

  /* The words of the marks near the cursor: "3 x the same". */
  near(time) {
    const { times } = this.props;
    const reach = (times[times.length - 1] - times[0]) / 80;
    const words = new Map();
    for (const group of this.groups().filter((g) => Math.abs(g.at - time) <= reach)) {
      for (const mark of group.marks) {
        words.set(mark.text, { n: (words.get(mark.text)?.n || 0) + 1, tone: mark.tone });
      }
    }
    return [...words].slice(0, 3).map(([text, { n, tone }]) => ({ text: n > 1 ? `${n} × ${text}` : text, tone }));
  }

  legend() {
    const { series, times, format = num } = this.props;
    const at = this.state.at ?? times.length - 1;
    return h('div', { class: 'legend' },
      series.map((s) => h('span', { key: s.label, class: 'entry' },
        h('span', { class: `swatch ${s.color.slice(2)}` }), s.label, ' ', h('b', null, format(s.values[at] ?? null)))),
      this.state.at !== null && h('span', { class: 'faint' }, utc(times[at] * 1000).slice(11, 19)));
  }

  marksAtCursor() {
    const time = this.props.times[this.state.at];
    return h('div', { class: 'marks' }, time && this.near(time).map((mark) => h('span', { key: mark.text, class: mark.tone || '' }, mark.text, ' ')));
  }

  table() {
    const { series, times, format = num, marks = [], title } = this.props;
    return h('div', { class: 'scroll plot-table', tabIndex: 0, role: 'region', 'aria-label': `${title}: numbers` },
      h('table', { class: 'rows compact' },
        h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Until (UTC)'),
          series.map((s) => h('th', { key: s.label, scope: 'col', class: 'n' }, s.label)))),
        h('tbody', null, times.map((t, i) => h('tr', { key: t }, h('td', null, utc(t * 1000).slice(0, 19)),
          series.map((s) => h('td', { key: s.label, class: 'n' }, format(s.values[i] ?? null))))).reverse())),
      marks.length > 0 && h('ul', null, marks.map((m, i) => h('li', { key: i }, utc(m.at * 1000).slice(0, 19), ': ', m.text))));
  }

  render({ title, times }, { open }) {
    return h('figure', { class: 'plot' },
      h('figcaption', null, h('h3', null, title), times.length > 0 && this.legend()),
      h('div', { ref: this.place, class: 'canvas' }),
      this.marksAtCursor(),
      h('details', { onToggle: (event) => this.setState({ open: event.target.open }) },
        h('summary', null, 'Numbers', h('span', { class: 'hidden' }, ` of ${title}`)), open && this.table()));
  }
}
