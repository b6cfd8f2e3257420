/*
 * A graph of steps as SVG: a box for each step, a mapped one as a pile with
 * the counts of its tasks. Colour, icon and word say the status.
 */
import { Button, Component, createRef, h } from './ui.js';
import { layout } from './graph.js';

const HEIGHT = 46;
const LEAST = 128;
const MOST = 220;
const LETTER = 7.3; /* mean width of one in a box */
const MARGIN = 6;
const PADDING = 14; /* as in style.css */
const PILE = 4; /* a pile's second sheet looks out this far */
const NARROW = 640;
const INSET = 8;
const LEGIBLE = 0.8; /* a graph that is a little too wide is drawn smaller */

const icons = {
  completed: 'M2 6.4l2.6 2.6L10 3', skipped: 'M2.5 2.5L7 6 2.5 9.5zM9.5 2.5v7',
  cancelled: 'M6 1.5a4.5 4.5 0 100 9 4.5 4.5 0 000-9zM3 3l6 6',
  error: 'M2.5 2.5l7 7M9.5 2.5l-7 7', running: 'M3.5 2.2l6 3.8-6 3.8z', retry: 'M9.8 6A3.8 3.8 0 118.5 3.1M9.8 1.2v2.5H7.3',
  pending: 'M6 1.5a4.5 4.5 0 100 9 4.5 4.5 0 000-9zM6 3.6v2.6l1.7 1.1',
  blocked: 'M3 5.5h6v4.7H3zM4.2 5.5V3.8a1.8 1.8 0 013.6 0v1.7',
  paused: 'M4 2.5v7M8 2.5v7',
};

/* The order of segments in the bar of a map. */
const segments = ['completed', 'skipped', 'error', 'cancelled', 'running', 'retry', 'pending', 'blocked'];

function cut(text, width) {
  const most = Math.floor(width / LETTER);
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/* Returns [width, height] of a step's box, from its words. */
function sizeOf(step) {
  const letters = Math.max(step.key.length, (step.line || '').length * 0.92);
  return [Math.max(LEAST, Math.min(MOST, Math.round(letters * LETTER) + 44)), HEIGHT];
}

/* The bar at the foot of a map's box: its tasks by status. */
function Counts({ counts, box }) {
  const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
  let x = box.x + INSET;
  return segments.filter((status) => counts[status]).map((status) => {
    const width = ((box.width - 2 * INSET) * counts[status]) / all;
    x += width;
    return h('rect', { key: status, class: `part ${status}`, x: x - width, y: box.y + box.height - 6, width, height: 3 });
  });
}

function Node({ step, box, href, selected, critical }) {
  const { x, y, width, height } = box;
  const kind = step.event ? 'event' : step.delay && !step.job_type ? 'delay' : step.job_type ? 'job' : 'join';
  const classes = ['node', kind, step.status || 'none', step.open && 'open', selected && 'selected', critical && 'critical'];
  const shape = { width, height, rx: kind === 'job' ? 6 : 14 };
  return h('a', { href, class: classes.filter(Boolean).join(' '), 'aria-current': selected ? 'true' : undefined, 'data-key': step.key },
    step.map && h('rect', { class: 'sheet', x: x + PILE, y: y - PILE, ...shape }),
    h('rect', { class: 'card', x, y, ...shape }, h('title', null, step.about)),
    step.counts && h(Counts, { counts: step.counts, box }),
    step.status && h('path', { class: 'sign', d: icons[step.status] || icons.blocked,
      transform: `translate(${x + 10} ${y + 9})` }),
    h('text', { class: 'key', x: x + (step.status ? 28 : 12), y: y + 19 }, cut(step.key, width - 36)),
    h('text', { class: 'word', x: x + (step.status ? 28 : 12), y: y + 35 }, cut(step.line || '', (width - 32) * 1.1)));
}

/*
 * {steps: [{key, after, job_type, map, event, delay, status, line, about,
 * counts}], href(key), selected, critical: [keys], label}. The boxes stay
 * where they are while the steps are the same.
 */
export class Diagram extends Component {
  constructor(props) {
    super(props);
    this.place = createRef();
    this.state = { width: 0, fit: null };
  }

  componentDidMount() {
    this.sizes = new ResizeObserver(() => this.setState({ width: this.place.current.clientWidth }));
    this.sizes.observe(this.place.current);
  }

  componentWillUnmount() {
    this.sizes.disconnect();
  }

  /* What is selected, runs or has failed is in sight when the graph is opened. */
  componentDidUpdate() {
    const place = this.place.current;
    const node = !this.shown && place.querySelector('.node.selected, .node.running, .node.error, .node.open');
    if (node) {
      const [box, frame] = [node.getBoundingClientRect(), place.getBoundingClientRect()];
      place.scrollLeft += box.left + box.width / 2 - frame.left - frame.width / 2;
      place.scrollTop += box.top + box.height / 2 - frame.top - frame.height / 2;
    }
    this.shown ||= this.state.width > 0;
  }

  /* Columns where they fit; rows where the page is narrow or the graph is long. */
  layout(width) {
    const { steps } = this.props;
    const drawn = JSON.stringify([width < NARROW, steps.map(({ key, after }) => [key, after])]);
    if (drawn !== this.drawn) {
      const wide = layout(steps, sizeOf, { layerGap: 40 });
      const tall = layout(steps, sizeOf, { layerGap: 34, gap: 14, down: true });
      this.drawn = drawn;
      this.graph = width < NARROW || (wide.width * LEGIBLE > width && tall.width <= width * 0.9) ? tall : wide;
    }
    return this.graph;
  }

  draw(graph) {
    const { steps, href, selected, critical = [], label } = this.props;
    const { width: place } = this.state;
    const byKey = new Map(steps.map((step) => [step.key, step]));
    const way = new Set(critical.slice(1).map((key, i) => `${critical[i]} ${key}`));
    const width = graph.width + 2 * MARGIN + PILE;
    const height = graph.height + 2 * MARGIN + PILE;
    const scale = this.fits(graph) ? Math.min(1, (place - 2 * PADDING) / width) : 1;
    const edge = ({ from, to, path }) => h('path', {
      key: `${from} ${to}`, d: path,
      class: [
        'edge', byKey.get(from).ended && 'done', way.has(`${from} ${to}`) && 'critical', [from, to].includes(selected) && 'near',
      ].filter(Boolean).join(' '),
    });
    return h('svg', {
      class: 'steps', role: 'group', 'aria-label': label, width: width * scale, height: height * scale,
      viewBox: `${-MARGIN} ${-MARGIN - PILE} ${width} ${height}`,
    },
    h('g', { 'aria-hidden': 'true' },
      [...graph.edges].sort((a, b) => way.has(`${a.from} ${a.to}`) - way.has(`${b.from} ${b.to}`)).map(edge)),
    graph.nodes.map((box) => h(Node, {
      key: box.key, step: byKey.get(box.key), box, href: href(box.key), selected: selected === box.key,
      critical: critical.includes(box.key),
    })));
  }

  /* The scale at which a graph is as wide as its place. */
  whole(graph) {
    return (this.state.width - 2 * PADDING) / (graph.width + 2 * MARGIN + PILE);
  }

  fits(graph) {
    return this.state.fit ?? this.whole(graph) >= LEGIBLE;
  }

  render({ label }, { width }) {
    const graph = width > 0 ? this.layout(width) : null;
    const fit = graph && this.fits(graph);
    return h('div', { class: 'diagram' },
      h('div', { class: 'canvas', ref: this.place, role: 'region', 'aria-label': label, tabIndex: 0 },
        graph && this.draw(graph)),
      graph && this.whole(graph) < 1 && h(Button, {
        class: 'small', 'aria-pressed': String(fit), onClick: () => this.setState({ fit: !fit }),
      }, fit ? 'Full size' : 'Fit'));
  }
}
