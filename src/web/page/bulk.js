/*
 * An action on all jobs of a filter: preview, typed name, progress, stop.
 *
 * The server fixes the filter and the newest job at the preview, and works in
 * steps; closing the dialog does not stop it.
 */
import { Box, openDialog } from './dialog.js';
import { Question } from './form.js';
import { Button, Component, Loading, Num, Trouble, act, h, num } from './ui.js';

const POLL_MS = 400;

const words = {
  cancel: { verb: 'Cancel', done: 'cancelled', what: 'jobs that wait' },
  retry: { verb: 'Retry', done: 'retried', what: 'dead letters' },
  purge: { verb: 'Purge', done: 'purged', what: 'dead letters', text: 'They are deleted, with their payloads and errors.' },
};

/*
 * {api, action, filter (as POST bulk), about: what the filter says, in words,
 * what, text: instead of the words below}. Resolves when closed.
 */
export function openBulk(spec) {
  return openDialog(Bulk, spec);
}

class Bulk extends Component {
  constructor(props) {
    super(props);
    this.state = { preview: null, run: null, problem: null };
  }

  componentDidMount() {
    this.preview();
  }

  componentWillUnmount() {
    clearTimeout(this.timer);
    this.gone = true;
  }

  async preview() {
    const { api, action, filter } = this.props;
    try {
      this.setState({ preview: await api.post('bulk', { action, filter }) });
    } catch (problem) {
      this.setState({ problem });
    }
  }

  async start() {
    this.take(await this.props.api.post(['bulk', this.state.preview.token]));
  }

  take(run) {
    if (this.gone) {
      return;
    }
    this.setState({ run, problem: null });
    clearTimeout(this.timer);
    /* the step during which it was stopped still ends, and counts */
    if (run.state === 'running' || run.state === 'stopped') {
      this.timer = setTimeout(() => this.look(), run.state === 'running' ? POLL_MS : 3 * POLL_MS);
    }
  }

  async look() {
    try {
      this.take(await this.props.api.get(['bulk', this.state.preview.token]));
    } catch (problem) {
      this.setState({ problem });
      if (problem.passing && !this.gone) {
        this.timer = setTimeout(() => this.look(), 5 * POLL_MS);
      }
    }
  }

  stop() {
    act(async () => this.take(await this.props.api.del(['bulk', this.state.preview.token])));
  }

  progress() {
    const { run, problem } = this.state;
    const { action, close } = this.props;
    const { verb, done } = words[action];
    const ended = run.state !== 'running';
    const states = { done: 'Done', stopped: 'Stopped', failed: 'Failed' };
    return h(Box, { title: ended ? `${states[run.state]}: ${num(run.done)} ${done}` : `${verb}: ${num(run.done)} …`, close },
      h('progress', { value: ended && run.state === 'done' ? 1 : run.done, max: ended && run.state === 'done' ? 1 : Math.max(run.total, run.done, 1), 'aria-label': `${verb} jobs` }),
      h('p', { role: 'status' }, `${num(run.done)} of `, h(Num, { n: run.total, exact: run.exact }), ` ${done}. `,
        run.state === 'done' && run.done < run.total && 'The others had changed meanwhile, or cannot be changed now.', run.state === 'running' && 'It goes on when this is closed.',
        run.state === 'stopped' && 'What was done stays; a step that had begun still ends.'),
      run.error && h('p', { class: 'bad' }, run.error), problem && h(Trouble, { problem }),
      h('div', { class: 'buttons' }, !ended && h(Button, { class: 'danger', icon: 'stop', onClick: () => this.stop() }, 'Stop'), h(Button, { onClick: () => close(run) }, 'Close')));
  }

  render({ action, filter, about, close, ...own }, { preview, run, problem }) {
    const { verb, what, text } = { ...words[action], ...own };
    if (run) {
      return this.progress();
    }
    if (!preview || (preview.n === 0 && preview.exact)) {
      return h(Box, { title: `${verb} ${what}`, close }, h('p', null, about),
        problem ? h(Trouble, { problem }) : preview ? h('p', null, `There are no ${what} like that.`) : h(Loading, null, 'Counting …'),
        h('div', { class: 'buttons' }, h(Button, { onClick: () => close() }, 'Close')));
    }
    const n = preview.exact ? num(preview.n) : `${num(preview.n)}+`;
    return h(Question, {
      title: `${verb} ${n} ${what}`, close: (result) => result === null && close(), tone: action === 'retry' ? 'primary' : 'danger',
      type: filter.job_type || 'all types', submit: `${verb} ${n}`, run: () => this.start(),
      text: [about, text, preview.exact ? null : `There may be more than ${num(preview.n)}; they are all meant.`, 'Jobs that come after this preview are not touched.'].filter(Boolean),
    });
  }
}
