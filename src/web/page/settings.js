/*
 * The settings of a job type: as they are, or as a form that shows what it
 * will change before it is saved.
 */
import { Button, Component, Fragment, Trouble, ask, h, interval, seconds } from './ui.js';
import { readJson, writeJson } from './api.js';
import { Form } from './form.js';

/* ---------- what a type has ---------- */

const fields = [
  ['Work', [
    { name: 'handler', label: 'Handler', type: 'text', placeholder: 'public.work(jsonb)', help: 'a SQL function of jsonb' },
    { name: 'command', label: 'Command', type: 'list', help: 'the program with its arguments, one a line' },
    { name: 'run_as', label: 'Runs as', type: 'text', help: 'a role' },
  ]],
  ['Attempts', [
    { name: 'max_attempts', label: 'Attempts', type: 'int' },
    { name: 'timeout', label: 'Timeout', type: 'interval' },
    { name: 'backoff', label: 'Backoff', type: 'select', options: ['exponential', 'fixed'] },
    { name: 'backoff_base', label: 'First pause', type: 'interval' },
    { name: 'backoff_max', label: 'Longest pause', type: 'interval' },
    { name: 'backoff_jitter', label: 'Jitter', type: 'number', help: '0 to 1' },
  ]],
  ['Order and limits', [
    { name: 'base_priority', label: 'Priority', type: 'int', help: '-100 to 100, higher goes first' },
    { name: 'max_concurrent', label: 'At once', type: 'int', help: '0: no limit' },
    { name: 'cpu_weight', label: 'Weight', type: 'int' },
    { name: 'rate_limit', label: 'Starts', type: 'int', help: 'in each window, 0: no limit' },
    { name: 'rate_window', label: 'Window', type: 'interval' },
  ]],
  ['Kept', [
    { name: 'keep_completed', label: 'Finished jobs', type: 'interval' },
    { name: 'keep_dead', label: 'Dead letters', type: 'interval', help: 'empty: until purged' },
    { name: 'critical', label: 'Critical: dead letters raise high alerts', type: 'bool' },
  ]],
];

const all = fields.flatMap(([, list]) => list);

/* Names of options by the kind of type that takes them, as in jobq.option_keys. */
const optionNames = {
  all: ['aging', 'alert', 'breaker', 'burst', 'concurrency_per_key', 'events', 'fair_by', 'fair_depth',
    'keep_completed_count', 'keep_dead_count',
    'key_order', 'limits', 'log_fields', 'max_crashes', 'max_depth', 'max_priority', 'max_skip',
    'max_unique_for',
    'min_interval', 'on_complete', 'on_dead', 'on_failure', 'permanent_codes', 'refuse_on_disk_emergency', 'require_tenant',
    'retry_codes'],
  exec: ['allow_dash', 'cpu_seconds', 'env', 'kill_grace', 'log_stderr', 'max_log_lines', 'max_output', 'memory_max',
    'nofile', 'output', 'pass_env',
    'permanent_exit_codes', 'require_labels', 'run_on', 'skip_exit_codes', 'snooze', 'snooze_exit_codes', 'stall', 'sticky',
    'warm', 'warm_idle',
    'warm_max_jobs', 'warm_memory'],
  pull: ['lease_follows_connection', 'max_lease', 'min_batch', 'require_labels', 'stall', 'sticky'],
  sql: ['batch'],
  workflow: [],
};

const OPTION = 'option ';

/* An option's value as the text of a field: JSON, words without quotes. */
function optionText(value) {
  return typeof value === 'string' && optionValue(value) === value ? value : writeJson(value);
}

function optionValue(text) {
  try {
    return readJson(text);
  } catch {
    return text;
  }
}

/* An interval as people write it: "01:30:00" is "1 h 30 min". */
function spoken(text) {
  if (text === null || /[-.]|mon|year/.test(text)) {
    return text;
  }
  let left = seconds(text);
  const parts = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]].map(([unit, size]) => {
    const n = Math.floor(left / size);
    left -= n * size;
    return n ? `${n} ${unit}` : '';
  });
  return parts.filter(Boolean).join(' ') || '0 s';
}

function shown(field, value) {
  if (value === null || value === undefined) {
    return h('span', { class: 'faint' }, '–');
  }
  switch (field.type) {
    case 'bool': return value ? 'yes' : 'no';
    case 'interval': return h('span', { title: value }, interval(value));
    case 'list': return h('code', null, value.join(' '));
    case 'option': return h('code', null, optionText(value));
    default: return ['handler'].includes(field.name) ? h('code', null, value) : String(value);
  }
}

/* ---------- as they are ---------- */

function Sheet({ type }) {
  const empty = (field) => ['handler', 'command'].includes(field.name) && type[field.name] === null;
  const options = Object.entries(type.options || {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return h('div', { class: 'sheet' },
    fields.map(([name, list]) => h('div', { key: name, class: 'part' }, h('h3', null, name),
      h('dl', null, list.filter((field) => !empty(field)).map((field) => h('div', { key: field.name },
        h('dt', null, field.label.split(':')[0]), h('dd', null, shown(field, type[field.name]))))))),
    h('div', { key: 'options', class: 'part options' }, h('h3', null, 'Options'),
      options.length ? h('dl', null, options.map(([name, value]) => h('div', { key: name }, h('dt', null, name),
        h('dd', null, shown({ type: 'option' }, value)))))
        : h('p', { class: 'faint' }, 'none: all have their defaults'),
      type.kind === 'exec' && h('p', { class: 'help' }, 'Values of env are not shown.')));
}

/* ---------- as a form ---------- */

/* A form whose fields have groups, and options that come and go. */
class SettingsForm extends Form {
  constructor(props) {
    super({ ...props, fields: [...props.head, ...all,
      ...props.options.map(([name]) => ({ name: OPTION + name, label: name, type: 'text' }))] });
    this.own = this.props.fields;
  }

  /* Adds the field of an option; it begins empty. */
  add(name) {
    const field = { name: OPTION + name, label: name, type: 'text', autofocus: true };
    this.own = [...this.own, field];
    this.begun[field.name] = '';
    this.setState(({ texts }) => ({ texts: { ...texts, [field.name]: '' } }),
      () => document.getElementById(this.prefix + field.name)?.focus());
  }

  chooser(kind) {
    const used = new Set(this.own.map((field) => field.name));
    const names = [...(optionNames[kind] || []), ...optionNames.all].filter((name) => !used.has(OPTION + name)).sort();
    const chosen = names.includes(this.state.more) ? this.state.more : '';
    return h('div', { class: 'field' }, h('label', { for: `${this.prefix}more` }, 'Add an option'),
      h('span', null,
        h('select', { id: `${this.prefix}more`, value: chosen, onChange: (event) => this.setState({ more: event.target.value }) },
          h('option', { value: '' }, 'choose …'), names.map((name) => h('option', { key: name, value: name }, name))), ' ',
        h(Button, { disabled: !chosen, onClick: () => this.add(chosen) }, 'Add')));
  }

  render({ kind, cancel, submit, head }, { problem, busy }) {
    this.props.fields = this.own;
    const group = (name, list, more) => h('fieldset', { key: name }, h('legend', null, name),
      h('div', { class: 'columns' }, list.map((field) => this.field(field)), more));
    const options = this.own.filter((field) => field.name.startsWith(OPTION));
    return h('form', { class: 'form settings', noValidate: true, onSubmit: (event) => this.submit(event) },
      head.length > 0 && group('Type', head),
      fields.map(([name, list]) => group(name, kind === 'workflow' && name === 'Work' ? list.slice(2) : list)),
      group('Options', options, this.chooser(kind)),
      h('p', { class: 'help' }, 'An option\'s value is JSON, or a word; an empty one has its default. An empty setting has its default, too.'),
      problem && h(Trouble, { problem }),
      h('div', { class: 'buttons' },
        h('button', { type: 'submit', class: 'primary', disabled: busy }, submit),
        h(Button, { onClick: cancel }, 'Cancel')));
  }
}

/* Returns the arguments of alter_job_type for the fields that were changed. */
function argumentsOf(changed) {
  const result = {};
  for (const [name, value] of Object.entries(changed)) {
    if (name.startsWith(OPTION)) {
      (result.options ??= {})[name.slice(OPTION.length)] = value === null ? null : optionValue(value);
    } else if (value === null) {
      (result.reset ??= []).push(name);
    } else {
      result[name] = value;
    }
  }
  return result;
}

function Diff({ type, args }) {
  const option = ([name, value]) => [name, { type: 'option' }, type.options?.[name], value];
  const rows = [
    ...all.filter((field) => field.name in args).map((field) => [field.label.split(':')[0], field, type[field.name],
      args[field.name]]),
    ...(args.reset || []).map((name) => {
      const field = all.find((f) => f.name === name);
      return [field.label.split(':')[0], field, type[name], undefined];
    }),
    ...Object.entries(args.options || {}).map(option),
  ];
  const becomes = (field, value) => {
    if (value === null || value === undefined) {
      return h('span', { class: 'faint' }, 'its default');
    }
    return field.type === 'interval' ? value : shown(field, value);  /* as it was typed */
  };
  return h('div', { class: 'scroll' }, h('table', { class: 'rows compact' },
    h('caption', { class: 'hidden' }, 'What changes'),
    h('thead', null, h('tr', null, ['Setting', 'Now', 'Then'].map((t) => h('th', { key: t, scope: 'col' }, t)))),
    h('tbody', null, rows.map(([name, field, before, after]) => h('tr', { key: name },
      h('th', { scope: 'row' }, name), h('td', null, h('del', null, shown(field, before))),
      h('td', null, h('ins', null, becomes(field, after))))))));
}

class Edit extends Component {
  async save(changed) {
    const { api, type, done } = this.props;
    const args = argumentsOf(changed);
    if (!Object.keys(args).length) {
      done();
      return;
    }
    const saved = await ask({
      title: `Change ${type.name}`, submit: 'Save', children: h(Diff, { type, args }),
      run: async () => {
        await api.patch(['types', type.name], args);
        return true;
      },
    });
    if (saved) {
      done();
    }
  }

  async create(values) {
    const { api, done } = this.props;
    const given = argumentsOf(values);
    await api.post('types', given);
    done(values.name);
  }

  render({ type, done }) {
    const options = Object.entries(type?.options || {}).sort(([a], [b]) => (a < b ? -1 : 1));
    const intervals = all.filter((field) => type && field.type === 'interval').map((field) => [field.name,
      spoken(type[field.name])]);
    const values = {
      ...(type || { backoff: 'exponential' }), ...Object.fromEntries(intervals),
      ...Object.fromEntries(options.map(([name, value]) => [OPTION + name, optionText(value)])),
    };
    return h(SettingsForm, {
      options, values, kind: type?.kind ?? 'exec', cancel: () => done(), submit: type ? 'Review the changes …' : 'Create',
      head: type ? [] : [{ name: 'name', label: 'Name', type: 'text', required: true, autofocus: true }],
      onSubmit: (given, changed) => (type ? this.save(changed) : this.create(given)),
    });
  }
}

export default function Settings(props) {
  return h(Fragment, null, props.edit ? h(Edit, props) : h(Sheet, props));
}
