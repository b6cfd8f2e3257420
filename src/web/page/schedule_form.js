/*
 * The form of a schedule, which shows the ticks of the cron expression while
 * it is typed.
 */
import { Component, Time, h, link, problemText } from './ui.js';
import { Form } from './form.js';

const PREVIEW_MS = 300;

/* The next ticks of an expression, asked for when typing has stopped. */
class Preview extends Component {
  constructor(props) {
    super(props);
    this.state = { ticks: null, problem: null };
  }

  componentDidMount() {
    this.plan(0);
  }

  componentDidUpdate(before) {
    if (before.cron !== this.props.cron || before.timezone !== this.props.timezone) {
      this.plan(PREVIEW_MS);
    }
  }

  componentWillUnmount() {
    clearTimeout(this.timer);
    this.abort?.abort();
  }

  plan(pause) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), pause);
  }

  async look() {
    const { api, cron, timezone } = this.props;
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    if (!cron || /^\s*@?after\b/i.test(cron)) {
      this.setState({ ticks: cron ? [] : null, problem: null });
      return;
    }
    try {
      const { items } = await api.get('next_runs', { cron, timezone, n: 6 }, { signal: abort.signal });
      this.setState({ ticks: items, problem: null });
    } catch (problem) {
      if (!abort.signal.aborted) {
        this.setState({ problem });
      }
    }
  }

  render({ cron, timezone, local }, { ticks, problem }) {
    return h('div', { class: 'preview panel', 'aria-live': 'polite' }, h('h2', null, 'Its ticks'),
      problem ? h('p', { class: 'bad' }, problemText(problem))
        : !cron || !ticks ? h('p', { class: 'faint' }, 'appear here while you type')
          : ticks.length ? h('ol', { class: 'ticks' },
            ticks.map((t) => h('li', { key: t }, local(t, timezone || 'UTC'),
              h('span', { class: 'faint' }, ' ', h(Time, { at: t })))))
            : h('p', { class: 'faint' }, 'It follows the end of its last job.'));
  }
}

function fieldsOf(api, schedule) {
  const types = (api.live.state.data?.types || []).map((t) => t.job_type).filter(Boolean);
  const zones = Intl.supportedValuesOf?.('timeZone') || [];
  return [
    ...(schedule ? [] : [{ name: 'name', label: 'Name', type: 'text', required: true, autofocus: true }]),
    { name: 'cron', label: 'Cron', type: 'text', required: true, placeholder: '30 8 * * mon-fri',
      help: 'minute hour day month weekday; @daily; every 90s; after 10 min' },
    { name: 'timezone', label: 'Time zone', type: 'text', suggest: zones, placeholder: 'UTC' },
    { name: 'job_type', label: 'Job type', type: 'text', required: true, suggest: types },
    { name: 'payload', label: 'Payload', type: 'json', rows: 3,
      placeholder: '{"from": {"$": "$.last_tick"}, "to": {"$": "$.tick"}}' },
    ...(schedule ? [] : [{ name: 'tenant', label: 'Tenant', type: 'text' }]),
    { name: 'overlap', label: 'While the last job is live, a tick', type: 'select',
      options: [['skip', 'is skipped'], ['queue', 'waits for its end'], ['allow', 'has its job'],
        ['cancel', 'cancels it']] },
    { name: 'catch_up', label: 'Of missed ticks run', type: 'select',
      options: [['one', 'the newest'], ['all', 'all'], ['skip', 'none over a minute late']] },
    { name: 'catch_up_limit', label: 'All, but at most', type: 'int', placeholder: '100' },
    { name: 'jitter', label: 'Jitter', type: 'interval', placeholder: '0', help: 'the longest delay after a tick' },
    { name: 'starts_at', label: 'From', type: 'time', help: 'UTC' },
    { name: 'ends_at', label: 'Until', type: 'time', help: 'UTC' },
    { name: 'max_runs', label: 'Jobs, at most', type: 'int' },
    { name: 'pause_after_failures', label: 'Pause after dead letters in a row', type: 'int' },
    { name: 'options', label: 'Options', type: 'json', rows: 3, placeholder: '{"priority": 10}',
      help: 'further arguments of jobq.enqueue' },
  ];
}

/* {api, schedule (none: a new one), done, local (the text of a time in a zone)} */
export default function Edit({ api, schedule, done, local }) {
  const save = async (values, changed) => {
    if (!schedule) {
      await api.post('schedules', values);
      location.assign(link(['schedules', values.name], { tenant: values.tenant }));
      return;
    }
    const reset = Object.keys(changed).filter((name) => changed[name] === null);
    const given = Object.fromEntries(Object.entries(changed).filter(([, value]) => value !== null));
    if (given.options && typeof given.options === 'object' && !Array.isArray(given.options)) {
      /* the server keeps options that are not named */
      given.options = { ...Object.fromEntries(Object.keys(schedule.options).map((key) => [key, null])), ...given.options };
    }
    if (Object.keys(changed).length) {
      await api.patch(['schedules', schedule.name],
        { ...given, reset: reset.length ? reset : undefined, tenant: schedule.tenant ?? undefined });
    }
    done();
  };
  return h('div', { class: 'edit-schedule' }, h(Form, {
    fields: fieldsOf(api, schedule), values: schedule || { overlap: 'skip', catch_up: 'one' }, submit: schedule ? 'Save'
      : 'Create', cancel: done, onSubmit: save,
  }, ({ values }) => h(Preview, { api, local, cron: values.cron, timezone: values.timezone })));
}
