/*
 * Lists of the API page by page, and the filters above them.
 *
 * The first page is read again every so often: rows that are shown change in
 * place, new ones are only counted until they are asked for, and those that it
 * has no more stay, faint, so that no row moves under the pointer.
 */
import { Button, Component, Empty, Fragment, Head, Icon, Loading, Remote, Stale, Trouble, h, now, problemText, refine,
  say, Typed } from './ui.js';
import { NewRows } from './table.js';

const PAGE = 50;

/*
 * {api, path, query, every (ms, 0: once), limit, keyOf, empty (an element),
 * children: (items, again, rowClass) => element}; rowClass is for its table.
 */
export class Pages extends Component {
  constructor(props) {
    super(props);
    this.state = { items: undefined, next: null, fresh: null, left: new Set(), problem: null, at: 0, busy: false };
  }

  componentDidMount() {
    this.watch();
  }

  componentDidUpdate() {
    if (this.asked !== this.wanted()) {
      this.watcher.stop();
      this.setState({ items: undefined, next: null, fresh: null, left: new Set(), problem: null });
      this.watch();
    }
  }

  componentWillUnmount() {
    this.watcher.stop();
  }

  wanted() {
    return JSON.stringify([this.props.path, this.props.query, this.props.every]);
  }

  limit() {
    return this.props.limit || PAGE;
  }

  watch() {
    const { api, path, query, every = 0 } = this.props;
    this.asked = this.wanted();
    this.renew = false;
    this.watcher = api.watch(path, { ...query, limit: this.limit() }, every, (state) => this.take(state));
    this.again = () => {
      this.renew = true;
      return this.watcher.again();
    };
  }

  key(item) {
    return this.props.keyOf ? this.props.keyOf(item) : item.id;
  }

  take({ data, problem, at }) {
    const { items } = this.state;
    if (problem || data === undefined) {
      this.setState({ problem, at });
    } else if (items === undefined || this.renew || (items.length === 0 && data.items.length > 0)) {
      this.renew = false;
      this.setState({ items: data.items, next: data.next, fresh: null, left: new Set(), problem: null, at });
    } else {
      const fresh = new Map(data.items.map((item) => [this.key(item), item]));
      this.setState({ items: items.map((item) => fresh.get(this.key(item)) || item), fresh: data,
        left: this.left(fresh, data.next), problem: null, at });
    }
  }

  /* Keys of rows that the first page has no more; the last row that it has says how far it reaches. */
  left(fresh, next) {
    const keys = this.state.items.map((item) => this.key(item));
    const reach = next === null ? keys.length : keys.findLastIndex((key) => fresh.has(key));
    return new Set(keys.slice(0, Math.max(0, reach)).filter((key) => !fresh.has(key)));
  }

  /* Rows that have come, {n, more: there may be others}. */
  news() {
    const { items, fresh } = this.state;
    if (!fresh) {
      return { n: 0, more: false };
    }
    const known = new Set(items.map((item) => this.key(item)));
    const n = fresh.items.filter((item) => !known.has(this.key(item))).length;
    return { n, more: n === fresh.items.length && fresh.next !== null };
  }

  show() {
    const { fresh } = this.state;
    this.setState({ items: fresh.items, next: fresh.next, fresh: null, left: new Set() });
  }

  async more() {
    const { api, path, query } = this.props;
    const asked = this.asked;
    const cursor = this.state.next;
    this.setState({ busy: true });
    try {
      const page = await api.get(path, { ...query, limit: this.limit(), cursor });
      if (asked === this.asked && cursor === this.state.next) {
        this.setState(({ items }) => ({ items: [...items, ...page.items], next: page.next }));
      }
    } catch (problem) {
      say(problemText(problem));
    }
    this.setState({ busy: false });
  }

  render({ children, empty }, { items, next, left, problem, at, busy }) {
    const draw = Array.isArray(children) ? children[0] : children;
    const rowClass = (item) => (left.has(this.key(item)) ? 'left' : '');
    if (items === undefined) {
      return problem ? h(Trouble, { problem, again: this.again }) : h(Loading);
    }
    const { n, more } = this.news();
    return h(Fragment, null,
      problem && h(problem.passing ? Stale : Trouble, { at, problem, again: this.again }),
      h(NewRows, { n, more, show: () => this.show() }),
      empty && items.length === 0 ? h(Empty, null, next === null ? empty : 'None so far.') : draw(items, this.again, rowClass),
      left.size > 0 && h('p', { class: 'under' }, h('span', null, h(Icon, { name: 'info' }), ' faint rows are gone, or do not match any more')),
      next !== null && h('p', { class: 'more' }, h(Button, { disabled: busy, onClick: () => this.more() }, items.length === 0 ? 'Search further back' : 'Show more')));
  }
}

/* Remote for one thing: the title stands above what takes the place of missing data. */
export class Found extends Remote {
  render(props, state) {
    const body = super.render(props, state);
    return state.data === undefined || state.data.items?.length === 0 ? h(Fragment, null, h(Head, { title: props.title }), body) : body;
  }
}

/* ---------- filters ---------- */

let ids = 0;

/*
 * Fields above a list, whose values are the query of the fragment:
 * {route, fields: [{name, label, options: [[value, label]], suggest: [text]}]}.
 */
export class Filters extends Component {
  constructor(props) {
    super(props);
    this.prefix = `filter${++ids}-`;
  }

  field({ name, label, options, suggest }, first) {
    const { route } = this.props;
    const id = this.prefix + name;
    const value = route.query[name] || '';
    const take = (text) => refine(route, { [name]: text });
    const input = options
      ? h('select', { id, value, onChange: (event) => take(event.target.value) },
        options.map(([v, text]) => h('option', { key: v, value: v, selected: v === value }, text)))
      : h(Typed, { id, value, type: 'search', list: suggest && `${id}-list`, autocomplete: 'off', spellcheck: false,
        'data-search': first ? '' : undefined, take });
    return h('div', { key: name, class: 'filter' }, h('label', { for: id }, label || name), input,
      suggest && h('datalist', { id: `${id}-list` }, suggest.map((s) => h('option', { key: s, value: s }))));
  }

  render({ route, fields }) {
    const used = fields.some(({ name }) => route.query[name]);
    const none = Object.fromEntries(fields.map(({ name }) => [name, '']));
    return h('form', { class: 'filter-bar', role: 'search', onSubmit: (event) => event.preventDefault() },
      fields.map((field) => this.field(field, field === fields.find((other) => !other.options))),
      used && h(Button, { class: 'quiet', onClick: () => refine(route, none) }, 'Clear'));
  }
}

/* The field `last`, and the time that its value means. */
export const lastField = { name: 'last', label: 'Since',
  options: [['', 'always'], ['1h', '1 hour'], ['24h', '24 hours'], ['7d', '7 days'], ['30d', '30 days']] };

const spans = { '1h': 3600, '24h': 86400, '7d': 7 * 86400, '30d': 30 * 86400 };

/* Returns the begin of a span as a time; the same until another span is asked for. */
export function sinceOf(holder, last) {
  if (holder.last !== last) {
    holder.last = last;
    holder.since = spans[last] ? new Date(now() - spans[last] * 1000).toISOString() : undefined;
  }
  return holder.since;
}
