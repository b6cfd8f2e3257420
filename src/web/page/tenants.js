/*
 * Tenants: their quotas, what they use, and the deletion of all their data.
 */
import { Bar, Button, Component, Empty, Facts, Fragment, Head, Num, Remote, ask, bytes, h, link, num, plural,
  say } from './ui.js';
import { Found, Pages } from './pages.js';
import { Table } from './table.js';

const RENEW_MS = 10000;
const statuses = ['pending', 'blocked', 'retry', 'running', 'completed', 'skipped', 'cancelled', 'error'];
const live = ['pending', 'blocked', 'retry', 'running'];

export const title = (route) => route.id ?? 'Tenants';

const faint = (text) => h('span', { class: 'faint' }, text);

/* ---------- quotas ---------- */

const quotas = [
  { name: 'max_live', label: 'Live jobs', type: 'int', used: 'live' },
  { name: 'max_bytes', label: 'Their bytes', type: 'int', used: 'bytes', format: bytes },
  { name: 'enqueues_per_minute', label: 'Enqueues a minute', type: 'int', used: 'enqueues' },
  { name: 'max_running', label: 'Running jobs', type: 'int', used: 'running' },
  { name: 'max_schedules', label: 'Schedules', type: 'int', used: 'schedules' },
];

function setQuota(api, tenant, again) {
  return ask({
    title: tenant ? `Quota of ${tenant.tenant}` : 'New quota', submit: 'Save', values: tenant,
    text: 'It counts the tenant and those below it: acme covers acme/eu. An empty field is no maximum; all empty: no quota.',
    fields: [...(tenant ? [] : [{ name: 'tenant', label: 'Tenant', type: 'text', required: true }]),
      ...quotas.map(({ name, label, type }) => ({ name, label, type }))],
    run: async ({ tenant: name, ...values }) => {
      await api.put(['tenants', tenant ? tenant.tenant : name], values);
      again();
    },
  });
}

async function purge(api, name, again) {
  const done = await ask({
    title: `Delete all data of ${name}`, tone: 'danger', submit: 'Delete all', type: name,
    text: ['Its jobs, live and ended, their events, alerts and artifacts, and its schedules are deleted. This cannot be undone.',
      `Those of tenants below it, as ${name}/eu, stay. The audit log keeps that it was done.`],
    run: () => api.del(['tenants', name]),
  });
  if (done) {
    say(`${plural(done.n ?? 0, 'row')} of ${name} deleted`);
    again();
  }
}

function Quota({ row, quota }) {
  const max = row[quota.name];
  const used = row[quota.used];
  const format = quota.format || num;
  if (max === null) {
    return used === undefined ? faint('–') : h('span', { title: 'no maximum' }, format(used));
  }
  return used === undefined ? format(max)
    : h('span', { class: 'used' }, h(Bar, { used, max }), h('span', { class: 'nobr' }, `${format(used)} / ${format(max)}`));
}

function columns(api, again) {
  return [
    { key: 'tenant', title: 'Tenant', class: 'wide', sort: (t) => t.tenant,
      render: (t) => h('a', { href: link(['tenants', t.tenant]) }, t.tenant) },
    ...quotas.map((quota) => ({ key: quota.name, title: quota.label, class: 'n', sort: (t) => t[quota.name],
      render: (t) => h(Quota, { row: t, quota }) })),
    api.can('configure') && {
      key: 'act', title: h('span', { class: 'hidden' }, 'Actions'), class: 'act',
      render: (t) => h(Button, { class: 'small', onClick: () => setQuota(api, t, again),
        'aria-label': `Set the quota of ${t.tenant}` }, 'Set'),
    },
  ].filter(Boolean);
}

/* Any tenant can be looked at, with or without a quota. */
function Look() {
  const open = (event) => {
    event.preventDefault();
    const name = event.target.elements.tenant.value.trim();
    if (name) {
      location.assign(link(['tenants', name]));
    }
  };
  return h('form', { class: 'filter-bar', role: 'search', onSubmit: open },
    h('div', { class: 'filter' }, h('label', { for: 'tenant' }, 'Tenant'),
      h('input', { id: 'tenant', name: 'tenant', type: 'search', placeholder: 'acme/eu', autocomplete: 'off',
        spellcheck: false })),
    h('button', { type: 'submit' }, 'Open'));
}

function List({ api }) {
  let renew = () => {};
  return h(Fragment, null,
    h(Head, { title: 'Tenants', about: 'Those with a quota. Any other tenant can be opened by its name.' },
      api.can('configure') && h(Button, { icon: 'plus', onClick: () => setQuota(api, null, () => renew()) }, 'New quota …')),
    h(Look),
    h(Pages, { api, path: 'tenants', every: RENEW_MS, keyOf: (t) => t.tenant }, (items, again, rowClass) => {
      renew = again;
      return items.length ? h(Table, { rows: items, rowKey: (t) => t.tenant, columns: columns(api, again),
        caption: 'Tenants with a quota', rowClass, href: (t) => link(['tenants', t.tenant]) })
        : h(Empty, null, 'No tenant has a quota. New quota above sets one.');
    }));
}

/* ---------- a tenant ---------- */

function Jobs({ counts, name }) {
  return h('div', { class: 'short' }, h(Facts, {
    rows: statuses.map((status) => [status, counts[status]?.n
      ? h('a', { href: link('jobs', { tenant: name, status }) }, h(Num, counts[status])) : '0']),
  }));
}

class Tenant extends Component {
  render({ api, name }) {
    const query = { collection_id: name, limit: 1 };
    return h(Found, { api, title: name, path: '../../admin/jobs', query, every: RENEW_MS }, ({ counts }, again) => {
      const n = live.reduce((sum, status) => sum + (counts[status]?.n ?? 0), 0);
      /* counts end at 10,000 of a status */
      const exact = live.every((status) => counts[status]?.exact !== false);
      return h(Fragment, null,
        h(Head, { title: name, about: `Tenant with ${exact ? '' : 'over '}${plural(n, 'live job')}` },
          h('a', { class: 'button', href: link('jobs', { tenant: name }) }, 'Jobs'),
          h('a', { class: 'button', href: link('events', { tenant: name }) }, 'Events'),
          api.can('admin') && h(Button, { class: 'danger', onClick: () => purge(api, name, again) }, 'Delete all data …')),
        h('section', null, h('h2', null, 'Jobs'), h(Jobs, { counts, name })),
        h('section', null, h('h2', null, 'Quota'), h(QuotaOf,
          { api, name, used: { live: exact ? n : undefined, running: counts.running?.exact === false ? undefined : counts.running?.n } })));
    });
  }
}

/* used counts the jobs of the tenant itself, not of those below it. */
function QuotaOf({ api, name, used }) {
  return h(Remote, { api, path: 'tenants', query: { tenant: name } }, ({ items }, again) => {
    const row = items.find((t) => t.tenant === name);
    return h(Fragment, null,
      row ? h('div', { class: 'short' },
        h(Facts, { rows: quotas.map((quota) => [quota.label, h(Quota, { row: { ...row, ...used }, quota })]) }))
        : h('p', { class: 'faint' }, 'It has none of its own.'),
      row && h('p', { class: 'faint' }, `Used is what ${name} itself has; the quota counts tenants below it, too.`),
      api.can('configure') && h('p', { class: 'under' },
        h(Button, { onClick: () => setQuota(api, row || { tenant: name }, again) }, row ? 'Set …' : 'Set a quota …')));
  });
}

export default class Screen extends Component {
  render({ route, api }) {
    return route.id === undefined ? h(List, { api }) : h(Tenant, { api, name: route.id });
  }
}
