/*
 * The palette (Ctrl-K) and the list of keys (?).
 */
import { Box, openDialog } from './dialog.js';
import { Button, Component, h, link } from './ui.js';

/* ---------- the palette ---------- */

const UUID = /^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$/i;

/* Pages, job types, and the job whose id was typed or pasted. */
function found({ routes, api }, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const types = (api.live.state.data?.types || []).filter((t) => t.job_type);
  const all = [
    ...Object.entries(routes).filter(([, r]) => r.name).map(([name, r]) => ({ href: link(name), name: r.name, kind: 'page', key: `g ${r.key}` })),
    ...types.map((t) => ({ href: link('jobs', { job_type: t.job_type }), name: t.job_type, kind: 'jobs of the type' })),
    ...types.map((t) => ({ href: link(['types', t.job_type]), name: t.job_type, kind: 'type' })),
    ...['pending', 'blocked', 'retry', 'running', 'completed', 'skipped', 'cancelled', 'error'].map((s) => (
      { href: link('jobs', { status: s }), name: s, kind: 'jobs with the status' })),
  ];
  const id = UUID.test(text.trim()) ? [{ href: link(['jobs', text.trim()]), name: text.trim(), kind: 'job' }] : [];
  return [...id, ...all.filter((e) => words.every((w) => `${e.name} ${e.kind}`.toLowerCase().includes(w)))].slice(0, 12);
}

class Palette extends Component {
  constructor(props) {
    super(props);
    this.state = { text: '', at: 0 };
  }

  go(entry) {
    this.props.close();
    location.assign(entry.href);
  }

  key(event, entries) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      this.setState({ at: (this.state.at + step + entries.length) % Math.max(1, entries.length) });
    } else if (event.key === 'Enter' && entries[this.state.at]) {
      event.preventDefault();
      this.go(entries[this.state.at]);
    }
  }

  render({ context, close }, { text, at }) {
    const entries = found(context, text);
    return h(Box, { label: 'Go to', close },
      h('input', {
        type: 'text', value: text, placeholder: 'A page, a job type, or the id of a job', class: 'wide',
        role: 'combobox', 'aria-expanded': 'true', 'aria-controls': 'palette', 'aria-label': 'Go to', autocomplete: 'off', spellcheck: false,
        'aria-activedescendant': entries[at] ? `p${at}` : undefined,
        onInput: (event) => this.setState({ text: event.target.value, at: 0 }), onKeyDown: (event) => this.key(event, entries),
      }),
      h('ul', { id: 'palette', class: 'palette', role: 'listbox', 'aria-label': 'Places' },
        entries.map((entry, i) => h('li', {
          key: entry.href, id: `p${i}`, role: 'option', 'aria-selected': String(i === at), onClick: () => this.go(entry),
        }, h('span', null, entry.name), h('span', { class: 'faint' }, entry.kind), entry.key && h('kbd', null, entry.key)))),
      entries.length === 0 && h('p', { class: 'faint' }, 'Nothing has this name.'));
  }
}

export function openPalette(context) {
  openDialog(Palette, { context });
}

/* ---------- the list of keys ---------- */

const general = [
  ['/', 'search or filter'], ['Ctrl K', 'go to a page, a type, a job'], ['?', 'this list'], ['Esc', 'leave a field, close a dialog'],
];
const inLists = [['j k', 'next, previous row'], ['Enter', 'open'], ['x', 'select'], ['c', 'cancel'], ['r', 'retry']];

function Keys({ title, rows }) {
  return h('div', null, h('h3', null, title), h('dl', { class: 'keys' }, rows.map(([keys, what]) => h('div', { key: keys },
    h('dt', null, keys.split(' ').map((k) => h('kbd', { key: k }, k))), h('dd', null, what)))));
}

function Help({ routes, close }) {
  const go = Object.values(routes).filter((r) => r.key).map((r) => [`g ${r.key}`, r.name]);
  return h(Box, { title: 'Keys', close, wide: true },
    h('div', { class: 'columns' }, h(Keys, { title: 'Everywhere', rows: general }), h(Keys, { title: 'In lists', rows: inLists }),
      h(Keys, { title: 'Go to', rows: go })),
    h('div', { class: 'buttons' }, h(Button, { onClick: () => close() }, 'Close')));
}

export function openHelp(routes) {
  openDialog(Help, { routes });
}
