/*
 * Alerts, the audit log and the events: what has happened, the newest first.
 */
import { Component, Fragment, Head, Status, Time, h, link, utc } from './ui.js';
import { writeJson } from './api.js';
import { Filters, Pages, lastField, sinceOf } from './pages.js';
import { Table } from './table.js';

const RENEW_MS = 10000;
const INLINE = 6; /* changes that are shown at once */
const LONG = 60; /* letters of a value that are shown at once */

const titles = { alerts: 'Alerts', audit: 'Audit', events: 'Events' };

export const title = (route) => titles[route.path[0]];

/* ---------- values ---------- */

function text(value) {
  if (value === undefined || value === null) {
    return '–';
  }
  if (typeof value === 'string') {
    return /^\d{4}-\d\d-\d\dT/.test(value) ? utc(value) : value;
  }
  return writeJson(value);
}

/* Of those that JSON has: a number that is kept exactly is none. */
const isObject = (value) => value !== null && typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype;

/* Returns [[name, old, new]] of what differs; objects in objects are compared key by key. */
export function changes(before, after, prefix = '') {
  const names = new Set([...Object.keys(before || {}), ...Object.keys(after || {})]);
  return [...names].sort().flatMap((name) => {
    const [old, now] = [before?.[name], after?.[name]];
    if (isObject(old) && isObject(now)) {
      return changes(old, now, `${prefix}${name}.`);
    }
    return writeJson(old) === writeJson(now) ? [] : [[prefix + name, old, now]];
  });
}

/* A value; a long one is opened by its begin. */
function Value({ value }) {
  const words = text(value);
  return words.length <= LONG ? words
    : h('details', { class: 'long' }, h('summary', null, `${words.slice(0, LONG)} …`),
      h('pre', { class: 'block' }, writeJson(value, 2)));
}

function Change({ name, before, after, only }) {
  return h('div', { class: 'change' }, h('span', { class: 'name' }, name), ' ',
    !only && [h('del', null, h(Value, { value: before })), h('span', { class: 'arrow', 'aria-label': 'becomes' }, ' → ')],
    h('ins', null, h(Value, { value: after })));
}

/* What a call has changed; of something new its values. */
function Changes({ row }) {
  /* grants of a role are a list */
  const listed = Array.isArray(row.old) || Array.isArray(row.new);
  const [old, now] = listed ? [{ grants: row.old ?? [] }, { grants: row.new ?? [] }] : [row.old, row.new];
  const both = isObject(old) && isObject(now);
  const list = both ? changes(old, now) : changes(null, isObject(now) ? now : old);
  if (!list.length) {
    return h('span', { class: 'faint' }, both ? 'nothing differs' : text(row.new));
  }
  const shown = list.map(([name, before, after]) => h(Change, { key: name, name, before, after, only: !both }));
  if (list.length <= (both ? INLINE : 3)) {
    return shown;
  }
  return h('details', null, h('summary', null, both ? `${list.length} changes` : `${list.length} values`), shown);
}

/* An event's message; its data are behind it. */
function Message({ row }) {
  const entries = Object.entries(row.data || {});
  const words = row.message || entries.map(([name, value]) => `${name} ${text(value)}`).join(', ');
  return entries.length ? h('details', null, h('summary', null, words),
    h('pre', { class: 'block' }, writeJson(row.data, 2))) : words;
}

const whole = (id) => id && h('a', { href: link(['jobs', id]), class: 'id', title: id }, `…${id.slice(-8)}`);
const ofType = (name) => name && h('a', { href: link(['types', name]) }, name);
const when = { key: 'ts', title: 'When', class: 'nobr', render: (row) => h(Time, { at: row.ts }) };
const tenant = { key: 'tenant', title: 'Tenant', render: (row) => row.tenant ?? h('span', { class: 'faint' }, '–') };

/* ---------- the three lists ---------- */

const places = {
  job_type: (o) => link(['types', o]), workflow: (o) => link(['workflows', o]),
  schedule: (o, t) => link(['schedules', o], { tenant: t }),
  limit: () => link('limits'), signal: () => link('rules'), rule: () => link('rules'), tenant: (o) => link(['tenants', o]),
  job: (o) => link(['jobs', o]), run: (o) => link(['runs', o]),
};

function Thing({ row }) {
  const { object_type: type, object, tenant: of } = row;
  const href = object && places[type]?.(object, of);
  return h('span', { class: 'thing' }, h('span', { class: 'faint' }, type.replace('_', ' ')), ' ',
    href ? h('a', { href }, object) : object);
}

const lists = {
  alerts: {
    about: 'Dead letters raise alerts: of critical job types high ones.',
    empty: 'No alert. A dead letter of a job type with option alert raises one.',
    fields: [lastField, { name: 'severity', label: 'Severity',
      options: [['', 'all'], ['high', 'high'], ['warning', 'warning']] }],
    key: (row) => `${row.ts} ${row.job_id}`,
    columns: [
      when,
      { key: 'severity', title: 'Severity', render: (row) => h(Status, { status: row.severity }) },
      { key: 'job_type', title: 'Type', render: (row) => ofType(row.job_type) },
      { key: 'error_msg', title: 'Error', class: 'wide', render: (row) => row.error_msg || row.message },
      { key: 'attempts', title: 'Attempts', class: 'n' },
      tenant,
      { key: 'job_id', title: 'Job', render: (row) => whole(row.job_id) },
    ],
  },
  audit: {
    about: 'One row for each call that manages jobs, types, limits, rules, schedules and workflows.',
    empty: 'No call. Each change of a type, limit, rule, schedule or job leaves a row.',
    fields: [lastField, {
      name: 'action', label: 'Action',
      suggest: ['create_job_type', 'alter_job_type', 'drop_job_type', 'pause_job_type', 'resume_job_type',
        'create_workflow', 'set_limit',
        'drop_limit', 'set_signal', 'set_pressure_rule', 'grant_access', 'revoke_access', 'set_tenant_quota',
        'purge_tenant', 'schedule',
        'alter_schedule', 'unschedule', 'run_schedule', 'backfill_schedule', 'stop_all', 'start_all', 'drain', 'cancel_job',
        'retry_job',
        'alter_job', 'retry_workflow', 'cancel_jobs', 'retry_dead_letters', 'purge_dead_letters'],
    }],
    key: (row) => row.id,
    columns: [
      when,
      { key: 'by', title: 'By', class: 'nobr' },
      { key: 'action', title: 'Action', class: 'nobr', render: (row) => h('code', null, row.action) },
      { key: 'object', title: 'Object', render: (row) => h(Thing, { row }) },
      { key: 'change', title: 'Change', class: 'wide much', render: (row) => h(Changes, { row }) },
      tenant,
      { key: 'client_addr', title: 'From', class: 'nobr',
        render: (row) => row.client_addr ?? h('span', { class: 'faint' }, 'socket') },
    ],
  },
  events: {
    about: 'What happened to jobs, runs and schedules; option events of a type says which are written.',
    empty: 'No event. Failures leave events, and with option events = all of a type every step of its jobs.',
    fields: [lastField,
      { name: 'level', label: 'Level', options: [['', 'all'],
        ...['error', 'warning', 'info', 'debug'].map((v) => [v, v])] },
      {
        name: 'type', label: 'Event',
        suggest: ['enqueued', 'started', 'completed', 'failed', 'retry', 'dead', 'cancelled', 'skipped', 'ticked',
          'tick_skipped', 'schedule_paused',
          'schedule_failed', 'blocked', 'released', 'run_started', 'run_finished', 'event_received', 'compensating',
          'signal_failed'],
      },
      { name: 'job_type', label: 'Job type' }, { name: 'tenant', label: 'Tenant' }],
    key: (row) => row.id,
    columns: [
      when,
      { key: 'level', title: 'Level', render: (row) => h(Status, { status: row.level }) },
      { key: 'type', title: 'Event', class: 'nobr', render: (row) => h('code', null, row.type) },
      { key: 'message', title: 'Message', class: 'wide', render: (row) => h(Message, { row }) },
      { key: 'job_type', title: 'Type', render: (row) => ofType(row.job_type) },
      tenant,
      { key: 'job_id', title: 'Job', render: (row) => whole(row.job_id) },
    ],
  },
};

export default class Screen extends Component {
  render({ route, api }) {
    const name = route.path[0];
    const { about, empty, fields, columns, key } = lists[name];
    const { last, ...query } = route.query;
    const known = Object.fromEntries(fields.map((field) => [field.name, query[field.name]]).filter(([, value]) => value));
    return h(Fragment, null,
      h(Head, { title: titles[name], about }),
      h(Filters, { key: name, route, fields }),
      h(Pages, {
        key: `list ${name}`, api, path: name, query: { ...known, since: sinceOf(this, last) }, every: RENEW_MS, keyOf: key,
        empty: Object.keys(known).length || last ? 'Nothing matches these filters.' : empty,
      }, (items, again, rowClass) => h(Table, { rows: items, columns, rowKey: key, caption: titles[name], rowClass, href: (row) => row.job_id
        && link(['jobs', row.job_id]) })));
  }
}

