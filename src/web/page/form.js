/*
 * Forms made from a list of fields, and dialogs.
 *
 * A field: {name, label, type, help, required, options, placeholder, rows,
 * suggest: [texts], full: as wide as a wide form}.
 * Types: text, long, int, number, bool, interval, json, time, select, list
 * (a line each), password. Values are as the API has them; an empty field
 * that had no value is not given, one that had a value is null.
 */
import { Box, openDialog } from './dialog.js';
import { readJson, writeJson } from './api.js';
import { Button, Component, Trouble, h, problemText, utc } from './ui.js';

/* ---------- values and the texts of inputs ---------- */

export function toText(field, value) {
  if (value === null || value === undefined) {
    return field.type === 'bool' ? false : '';
  }
  switch (field.type) {
    case 'bool': return Boolean(value);
    case 'json': return writeJson(value, 2);
    case 'list': return value.join('\n');
    case 'time': return utc(value).slice(0, 19);
    default: return String(value);
  }
}

/* Throws an Error whose message says what is expected. */
export function fromText(field, text) {
  if (field.type === 'bool') {
    return Boolean(text);
  }
  if (String(text).trim() === '') {
    return undefined;
  }
  switch (field.type) {
    case 'int':
      if (!/^\s*-?\d+\s*$/.test(text)) {
        throw new Error('a whole number is expected');
      }
      return Number.isSafeInteger(Number(text)) ? Number(text) : readJson(text.trim());
    case 'number':
      if (!Number.isFinite(Number(text))) {
        throw new Error('a number is expected');
      }
      return Number(text);
    case 'json':
      try {
        return readJson(text);
      } catch (error) {
        throw new Error(`this is not JSON: ${error.message}`);
      }
    case 'list':
      return text.split('\n').filter((line) => line !== '');
    case 'time': {
      const iso = text.trim().replace(' ', 'T').replace(/ ?UTC$/, '');
      const at = !/^[+-]?\d{4,6}-\d\d-\d\d/.test(iso) ? new Date(NaN) : new Date(/[zZ]|[+-]\d\d:?\d\d$/.test(iso) ? iso : `${iso}Z`);
      if (Number.isNaN(at.getTime())) {
        throw new Error('a time like 2026-11-26 14:30 (UTC) is expected');
      }
      return at.toISOString();
    }
    default:
      return text;
  }
}

/* ---------- the form ---------- */

let ids = 0;

/*
 * {fields, values, onSubmit(values, changed), submit, tone, cancel, wide,
 * children({values, changed, wrong}) below the fields}. values are all values, changed those
 * that differ from the ones that the form began with.
 */
export class Form extends Component {
  constructor(props) {
    super(props);
    const texts = {};
    for (const field of props.fields) {
      texts[field.name] = toText(field, props.values?.[field.name] ?? field.value);
    }
    this.begun = { ...texts };
    this.prefix = `f${++ids}-`;
    this.state = { texts, wrong: {}, problem: null, busy: false };
  }

  set(name, text) {
    const wrong = { ...this.state.wrong };
    delete wrong[name];
    this.setState({ texts: { ...this.state.texts, [name]: text }, wrong, problem: null });
    this.props.onInput?.(name, text);
  }

  focus(name) {
    document.getElementById(this.prefix + name)?.focus();
  }

  /* Reads all fields; returns {values, changed, wrong}. */
  read() {
    const [values, changed, wrong] = [{}, {}, {}];
    for (const field of this.props.fields) {
      const text = this.state.texts[field.name];
      try {
        const value = fromText(field, text);
        if (value === undefined && field.required) {
          throw new Error('this is needed');
        }
        if (value !== undefined) {
          values[field.name] = value;
        }
        if (text !== this.begun[field.name]) {
          changed[field.name] = value === undefined ? null : value;
        }
      } catch (error) {
        wrong[field.name] = error.message;
      }
    }
    return { values, changed, wrong };
  }

  async submit(event) {
    event.preventDefault();
    const { values, changed, wrong } = this.read();
    const first = this.props.fields.find((field) => wrong[field.name]);
    if (first) {
      this.setState({ wrong }, () => this.focus(first.name));
      return;
    }
    this.setState({ busy: true, problem: null });
    try {
      await this.props.onSubmit(values, changed);
      this.setState({ busy: false });
    } catch (problem) {
      const known = this.props.fields.some((field) => field.name === problem.argument);
      this.setState({ busy: false, problem: known ? null : problem, wrong: known ? { [problem.argument]: problemText(problem) } : {} },
        () => known && this.focus(problem.argument));
    }
  }

  input(field) {
    const id = this.prefix + field.name;
    const text = this.state.texts[field.name];
    const wrong = this.state.wrong[field.name];
    const common = {
      id, name: field.name, required: undefined, 'aria-required': field.required ? 'true' : undefined,
      'aria-invalid': wrong ? 'true' : undefined, placeholder: field.placeholder,
      'aria-describedby': [field.help && `${id}-help`, wrong && `${id}-wrong`].filter(Boolean).join(' ') || undefined,
      onInput: (event) => this.set(field.name, field.type === 'bool' ? event.target.checked : event.target.value),
    };
    switch (field.type) {
      case 'bool':
        return h('input', { ...common, type: 'checkbox', checked: text });
      case 'select':
        return h('select', { ...common, value: text }, field.options.map((o) => {
          const [value, label] = Array.isArray(o) ? o : [o, o];
          return h('option', { key: value, value, selected: value === text }, label);
        }));
      case 'json': case 'long': case 'list':
        return h('textarea', { ...common, rows: field.rows || (field.type === 'json' ? 6 : 3), spellcheck: false,
          class: field.type === 'long' ? '' : 'code', value: text });
      default:
        return h('input', { ...common, value: text, type: field.type === 'password' ? 'password' : 'text',
          list: field.suggest && `${id}-list`, inputMode: field.type === 'int' ? 'numeric' : undefined,
          autocomplete: field.autocomplete || 'off', spellcheck: false, class: field.type === 'text' || !field.type ? '' : 'narrow' });
    }
  }

  field(field) {
    const id = this.prefix + field.name;
    const wrong = this.state.wrong[field.name];
    return h('div', { key: field.name, class: `field ${field.type === 'bool' ? 'check' : ''} ${field.full ? 'full' : ''}` },
      h('label', { for: id }, field.label || field.name, field.required && h('span', { class: 'needed', title: 'needed' }, ' *')),
      this.input(field),
      field.suggest && h('datalist', { id: `${id}-list` }, field.suggest.map((s) => h('option', { key: s, value: s }))),
      field.help && h('div', { id: `${id}-help`, class: 'help' }, field.help),
      wrong && h('div', { id: `${id}-wrong`, class: 'wrong' }, wrong));
  }

  render({ fields, submit, tone, cancel, children, ready, wide }, { problem, busy }) {
    const extra = Array.isArray(children) ? children[0] : children;
    return h('form', { class: `form ${wide ? 'wide' : ''}`, noValidate: true, onSubmit: (event) => this.submit(event) },
      fields.map((field) => this.field(field)),
      typeof extra === 'function' ? extra(this.read()) : extra,
      problem && h(Trouble, { problem }),
      h('div', { class: 'buttons' },
        h('button', { type: 'submit', class: tone || 'primary', disabled: busy || ready?.(this.state.texts) === false }, submit || 'Save'),
        cancel && h(Button, { onClick: cancel }, 'Close')));
  }
}

/* ---------- a form in a dialog ---------- */

/*
 * Opens a dialog: {title, text, fields, values, submit, tone: 'danger', wide,
 * type: a name to type, run(values, changed)}. Resolves with what run
 * returned, or with null when it was closed. A Problem of run is shown in the
 * dialog, which stays.
 */
export function ask(spec) {
  return openDialog(Question, spec);
}

const TYPED = ' typed';

/* {title, ... , close} of a dialog: see ask(). */
export function Question({ title, text, fields = [], values, submit, tone, wide, type, run, close, children }) {
  const all = type ? [...fields, { name: TYPED, label: `Type ${type} to go on` }] : fields;
  const send = async (given, changed) => {
    const { [TYPED]: typed, ...rest } = given;
    delete changed[TYPED];
    close((await run?.(rest, changed)) ?? rest);
  };
  return h(Box, { title, close, wide },
    text && [text].flat().map((t, i) => h('p', { key: i }, t)),
    children,
    h(Form, {
      fields: all, values, submit: submit || 'OK', tone, wide, cancel: () => close(), onSubmit: send,
      ready: type ? (texts) => texts[TYPED].trim() === type : undefined,
    }));
}
