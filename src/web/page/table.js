/*
 * The table of rows: windowed over 200, with a cursor, selection and keys.
 *
 * The cursor and the selection are keys of rows, so that they stay with a row
 * when rows come and go. Rows beyond the window are two rows of their height.
 */
import { Component, Icon, createRef, h, onKey } from './ui.js';

const WINDOWED = 200;
const MARGIN = 30;

export class Table extends Component {
  constructor(props) {
    super(props);
    this.state = { cursor: null, from: 0, to: WINDOWED, sort: null };
    this.body = createRef();
    this.root = createRef();
    this.rowHeight = 30;
    this.scrolled = () => {
      this.frame ??= requestAnimationFrame(() => this.look());
    };
  }

  componentDidMount() {
    this.endKeys = onKey((key) => this.key(key));
    addEventListener('scroll', this.scrolled, { passive: true });
    addEventListener('resize', this.scrolled, { passive: true });
  }

  componentWillUnmount() {
    this.endKeys();
    removeEventListener('scroll', this.scrolled);
    removeEventListener('resize', this.scrolled);
    cancelAnimationFrame(this.frame);
  }

  componentDidUpdate() {
    if (this.props.rows.length > WINDOWED) {
      this.look();
    }
  }

  /* Chooses the rows of the window from the position on the screen. */
  look() {
    this.frame = undefined;
    const n = this.props.rows.length;
    if (n <= WINDOWED || !this.body.current) {
      return;
    }
    const drawn = this.body.current.querySelectorAll('tr[data-row]');
    if (drawn.length) {
      this.rowHeight = (drawn[drawn.length - 1].getBoundingClientRect().bottom - drawn[0].getBoundingClientRect().top) / drawn.length || this.rowHeight;
    }
    const top = -this.body.current.getBoundingClientRect().top / this.rowHeight;
    const from = Math.max(0, Math.min(n - 1, Math.floor(top) - MARGIN));
    const to = Math.max(from + 1, Math.min(n, Math.ceil(top + innerHeight / this.rowHeight) + MARGIN));
    if (Math.abs(from - this.state.from) > MARGIN / 3 || Math.abs(to - this.state.to) > MARGIN / 3) {
      this.setState({ from, to });
    }
  }

  sorted() {
    const { rows, columns } = this.props;
    const { sort } = this.state;
    const value = sort && columns.find((c) => c.key === sort.key)?.sort;
    if (!value) {
      return rows;
    }
    return [...rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const order = x === y ? 0 : x === null || x === undefined ? 1 : y === null || y === undefined ? -1 : x < y ? -1 : 1;
      return sort.down ? -order : order;
    });
  }

  keyOf(row) {
    return this.props.rowKey ? this.props.rowKey(row) : row.id;
  }

  /* The rows that an action by key is about: the selected ones, else the one at the cursor. */
  chosen() {
    const { rows, selection } = this.props;
    if (selection?.set.size) {
      return rows.filter((row) => selection.set.has(this.keyOf(row)));
    }
    return rows.filter((row) => this.keyOf(row) === this.state.cursor);
  }

  /* Keys are for the table with the focus, else for the first one of the screen. */
  key(key) {
    const { keys = {}, selection } = this.props;
    const table = document.activeElement?.closest('[data-table]') || document.querySelector('main [data-table]');
    if (table !== this.root.current) {
      return false;
    }
    if (key === 'j' || key === 'k') {
      return this.move(key === 'j' ? 1 : -1);
    }
    if (key === 'x' && selection && this.state.cursor !== null) {
      this.toggle(this.state.cursor);
      return true;
    }
    if (keys[key]) {
      const chosen = this.chosen();
      if (chosen.length) {
        keys[key](chosen);
        return true;
      }
    }
    return false;
  }

  move(step) {
    const rows = this.sorted();
    const at = rows.findIndex((row) => this.keyOf(row) === this.state.cursor);
    const next = at < 0 ? this.firstVisible() : Math.max(0, Math.min(rows.length - 1, at + step));
    if (!rows[next]) {
      return false;
    }
    const cursor = this.keyOf(rows[next]);
    if (rows.length > WINDOWED && (next < this.state.from || next >= this.state.to)) {
      const top = this.body.current.getBoundingClientRect().top + scrollY;
      scrollTo(0, top + next * this.rowHeight - innerHeight / 2);
      this.look();
    }
    this.setState({ cursor }, () => {
      const row = this.body.current.querySelector('tr[aria-current]');
      row?.focus({ preventScroll: true });
      row?.scrollIntoView({ block: 'nearest' });
    });
    return true;
  }

  firstVisible() {
    const row = [...this.body.current.querySelectorAll('tr[data-row]')].find((r) => r.getBoundingClientRect().top > 30);
    return Number(row?.dataset.row ?? 0);
  }

  toggle(key) {
    const { selection } = this.props;
    const set = new Set(selection.set);
    if (!set.delete(key)) {
      set.add(key);
    }
    selection.onChange(set);
  }

  toggleAll() {
    const { rows, selection } = this.props;
    selection.onChange(selection.set.size ? new Set() : new Set(rows.map((row) => this.keyOf(row))));
  }

  heading(column) {
    const { sort } = this.state;
    const mine = sort?.key === column.key;
    const props = { key: column.key, scope: 'col', class: column.class };
    if (!column.sort) {
      return h('th', props, column.title);
    }
    const click = () => this.setState({ sort: mine && sort.down ? { key: column.key } : mine ? null : { key: column.key, down: true } });
    return h('th', { ...props, 'aria-sort': mine ? (sort.down ? 'descending' : 'ascending') : undefined },
      h('button', { type: 'button', class: 'sort', onClick: click }, column.title,
        mine && h('span', { 'aria-hidden': 'true' }, sort.down ? ' ↓' : ' ↑')));
  }

  row(row, index) {
    const { columns, selection, href, rowClass, rowLabel } = this.props;
    const key = this.keyOf(row);
    const current = key === this.state.cursor;
    const selected = Boolean(selection?.set.has(key));
    const open = (event) => {
      if (event.key === 'Enter' && event.target === event.currentTarget && href?.(row)) {
        location.assign(href(row));
      }
    };
    return h('tr', {
      key, tabIndex: -1, 'data-row': index, 'aria-current': current ? 'true' : undefined,
      'aria-rowindex': this.props.rows.length > WINDOWED ? index + 2 : undefined,
      class: [rowClass?.(row), selected && 'selected'].filter(Boolean).join(' ') || undefined,
      onKeyDown: open, onFocusIn: () => current || this.setState({ cursor: key }),
    },
    selection && h('td', { class: 'tick' }, h('input', {
      type: 'checkbox', checked: selected, onChange: () => this.toggle(key),
      'aria-label': `Select ${rowLabel ? rowLabel(row) : key}`,
    })),
    columns.map((c) => h('td', { key: c.key, class: c.class }, c.render ? c.render(row) : row[c.key])));
  }

  gap(key, n) {
    return n > 0 && h('tr', { key, class: 'gap', 'aria-hidden': 'true', style: { height: `${n * this.rowHeight}px` } });
  }

  render({ columns, selection, caption, compact }) {
    const rows = this.sorted();
    const windowed = rows.length > WINDOWED;
    const from = windowed ? Math.min(this.state.from, rows.length - 1) : 0;
    const to = windowed ? Math.min(this.state.to, rows.length) : rows.length;
    const shown = rows.slice(from, to);
    /* cells that are cut off make it as wide as its place */
    const fits = columns.some((c) => c.class?.includes('text'));
    return h('div', { class: `scroll ${fits ? 'fits' : ''}`, ref: this.root, 'data-table': '', role: 'region', 'aria-label': caption, tabIndex: 0 },
      h('table', { class: `rows ${compact ? 'compact' : ''}`, 'aria-rowcount': windowed ? rows.length + 1 : undefined },
        h('caption', { class: 'hidden' }, caption),
        h('thead', null, h('tr', null,
          selection && h('th', { class: 'tick', scope: 'col' }, h('input', {
            type: 'checkbox', 'aria-label': 'Select all rows that are shown',
            checked: selection.set.size > 0 && selection.set.size >= rows.length,
            indeterminate: selection.set.size > 0 && selection.set.size < rows.length,
            onChange: () => this.toggleAll(),
          })),
          columns.map((c) => this.heading(c)))),
        h('tbody', { ref: this.body },
          this.gap('above', from), shown.map((row, i) => this.row(row, from + i)), this.gap('below', rows.length - to))));
  }
}

/* "12 new": rows that have come, shown on click. It lies over the table: rows do not move for it. */
export function NewRows({ n, more, show }) {
  return h('div', { class: 'news-place', role: 'status' }, n > 0 && h('button', { type: 'button', class: 'news', onClick: show },
    h(Icon, { name: 'plus' }), `${n}${more ? '+' : ''} new`));
}
