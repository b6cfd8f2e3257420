/*
 * Dead letters, grouped by error: what failed for good, and the way back.
 *
 * Groups are jobq.error_groups: they have waiting retries, too. Retry and
 * purge are actions on a filter (bulk.js), whose preview counts dead letters;
 * that of a group is its type, code and pattern.
 */
import { Button, Component, Empty, Fragment, h, Head, likeOf, link, now, num, refine, Remote, Searched, Time, Typed } from './ui.js';
import { Table } from './table.js';

export const title = 'Dead letters';

const GROUPS = 200;
const EVERY_MS = 10000;
const SPANS = [['', 'all'], ['1 hour', '1 h'], ['1 day', '24 h'], ['7 days', '7 d']];
const HOURS = { '1 hour': 1, '1 day': 24, '7 days': 168 };

export default class Dead extends Component {
  constructor(props) {
    super(props);
    this.since();
  }

  componentDidUpdate() {
    this.since();
  }

  /* Fixed when the filter is chosen: a moving one would be another request each time. */
  since() {
    const hours = HOURS[this.props.route.query.since];
    if (this.hours !== hours) {
      this.hours = hours;
      this.from = hours && new Date(now() - hours * 3600000).toISOString();
    }
    return this.from;
  }

  async bulk(action, group, again) {
    const { api, route } = this.props;
    const type = group?.job_type ?? route.query.job_type;
    const { tenant } = route.query;
    const code = group ? group.error_code ?? '' : route.query.error_code;
    const filter = { job_type: type, tenant, error_code: code, error_pattern: group && (group.pattern ?? '') };
    const about = ['All dead letters', type ? `of the type ${type}` : 'of all types', tenant && `of the tenant ${tenant}`, code ? `with the code ${code}` : code === '' && 'without a code',
      group && (group.pattern === null ? 'without a message' : `with the error “${group.pattern}”`), route.query.since && 'of any age'].filter(Boolean).join(', ');
    const { openBulk } = await import('./bulk.js');
    await openBulk({ api, action, filter, about: `${about}.` });
    again();
  }

  columns(again) {
    const { api } = this.props;
    return [
      { key: 'n', title: 'Jobs', class: 'n', sort: (g) => g.n, render: (g) => h('a', { href: link('jobs', { job_type: g.job_type, error: likeOf(g.pattern) }) }, num(g.n)) },
      { key: 'pattern', title: 'Error', class: 'text', render: (g) => h('a', { href: link(['jobs', g.job_id]), title: `${g.pattern ?? ''}\nopens the newest of them` }, g.pattern ?? 'no message') },
      { key: 'error_code', title: 'Code', class: 'opt cut', sort: (g) => g.error_code, render: (g) => h('code', null, g.error_code) },
      { key: 'job_type', title: 'Type', class: 'cut', sort: (g) => g.job_type, render: (g) => h('a', { href: link('dead', { job_type: g.job_type }), title: g.job_type }, g.job_type) },
      { key: 'first', title: 'First', class: 'n opt', sort: (g) => g.first, render: (g) => h(Time, { at: g.first }) },
      { key: 'last', title: 'Last', class: 'n', sort: (g) => g.last, render: (g) => h(Time, { at: g.last }) },
      api.can('admin') && { key: 'act', title: h('span', { class: 'hidden' }, 'Actions'), class: 'act', render: (g) => h('span', { class: 'pair' },
        h(Button, { class: 'small', icon: 'redo', 'aria-label': `Retry: ${g.pattern ?? 'no message'}`, onClick: () => this.bulk('retry', g, again) }, 'Retry …'),
        h(Button, { class: 'small quiet danger', 'aria-label': `Purge: ${g.pattern ?? 'no message'}`, onClick: () => this.bulk('purge', g, again) }, 'Purge …')) },
    ].filter(Boolean);
  }

  groups(data, again) {
    const { api, route } = this.props;
    const { error_code: code } = route.query;
    const { items } = data;
    if (!items.length) {
      return data.searched_to ? h(Empty, null, h(Searched, { at: data.searched_to })) : h(Empty, null, h('p', null, route.query.job_type || route.query.tenant || route.query.since || code ? 'No error like that.' : 'No job has failed for good, and no retry waits.'),
        h('p', null, 'A job that fails in all its attempts comes here, and stays until it is retried or purged.'));
    }
    return h(Fragment, null,
      h(Table, { rows: items, columns: this.columns(again), rowKey: (g) => `${g.job_type} ${g.error_code} ${g.pattern}`, caption: 'Errors of dead letters and waiting retries',
        href: (g) => link(['jobs', g.job_id]), keys: api.can('admin') ? { r: ([g]) => this.bulk('retry', g, again) } : {} }),
      h('div', { class: 'under' }, h('span', null, 'Errors of the 10,000 newest dead letters and waiting retries; numbers, ids and quotes are “?”.'),
        h('a', { href: link('jobs', { status: 'error', job_type: route.query.job_type, tenant: route.query.tenant }) }, 'Dead letters one by one')));
  }

  render({ api, route }) {
    const { job_type: type, tenant, error_code: code, since } = route.query;
    const types = (api.live.state.data?.types || []).filter((t) => t.dead > 0 || t.job_type === type).map((t) => t.job_type).filter(Boolean);
    const field = (name, label, options) => h('div', { class: 'field' }, h('label', { class: 'hidden', for: `dead-${name}` }, label),
      h(Typed, { id: `dead-${name}`, type: 'search', placeholder: label, value: route.query[name] || '', list: options && `dead-${name}-list`, autocomplete: 'off', spellcheck: false,
        'data-search': name === 'job_type' ? '' : undefined, take: (text) => refine(route, { [name]: text }) }),
      options && h('datalist', { id: `dead-${name}-list` }, options.map((o) => h('option', { key: o, value: o }))));
    const again = () => this.reload?.();
    /* the server refuses an action on all there is */
    const chosen = type || tenant || code ? {} : { disabled: true, title: 'Choose a type, a tenant or a code first' };
    return h(Fragment, null,
      h(Head, { title, about: 'Jobs whose attempts have all failed, by error.' }, api.can('admin') && [
        h(Button, { icon: 'redo', ...chosen, onClick: () => this.bulk('retry', null, again) }, 'Retry all …'),
        h(Button, { class: 'danger', ...chosen, onClick: () => this.bulk('purge', null, again) }, 'Purge all …')]),
      h('div', { class: 'filters' }, h('div', { class: 'filter-row' },
        h('div', { class: 'chips', role: 'group', 'aria-label': 'Last error' }, SPANS.map(([value, word]) => h('a', { key: word, href: link('dead', { ...route.query, since: value }), 'aria-current': (since || '') === value ? 'true' : undefined }, word))),
        field('job_type', 'Type', types), field('tenant', 'Tenant'), field('error_code', 'Code'))),
      h(Remote, { api, path: 'errors', query: { max_rows: GROUPS, job_type: type, tenant, error_code: code, since: this.since() }, every: EVERY_MS }, (data, read) => {
        this.reload = read;
        return this.groups(data, read);
      }));
  }
}
