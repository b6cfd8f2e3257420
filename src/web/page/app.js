/*
 * The page: sign-in, the frame around screens, the way from a fragment to its
 * screen, and keys.
 *
 * A screen is a module that is loaded when it is first opened: README.md has
 * its interface. The frame shows the health of the queue, from api.live.
 */
import { Api } from './api.js';
import { Button, Component, Fragment, Head, Icon, Loading, Stale, Status, Trouble, act, createRef, h, link, render, setSkew, takeKey } from './ui.js';

const api = new Api();
const SIGNED_IN = 'jobq: signed in';

/* Names of routes: the module, the word in the menu, the second key of g. */
const routes = {
  '': { load: () => import('./overview.js'), name: 'Overview', key: 'o', group: 'Work' },
  jobs: { load: (id) => (id ? import('./job.js') : import('./jobs.js')), name: 'Jobs', key: 'j', group: 'Work' },
  dead: { load: () => import('./dead.js'), name: 'Dead letters', key: 'd', group: 'Work' },
  workflows: { load: () => import('./flows.js'), name: 'Workflows', key: 'w', group: 'Work' },
  runs: { load: (id) => (id ? import('./run.js') : import('./flows.js')) },
  schedules: { load: () => import('./schedules.js'), name: 'Schedules', key: 's', group: 'Work' },
  types: { load: () => import('./types.js'), name: 'Types', key: 't', group: 'Settings' },
  limits: { load: () => import('./limits.js'), name: 'Limits', key: 'l', group: 'Settings' },
  rules: { load: () => import('./limits.js'), name: 'Rules', key: 'r', group: 'Settings' },
  tenants: { load: () => import('./tenants.js'), name: 'Tenants', key: 'n', group: 'Settings' },
  alerts: { load: () => import('./log.js'), name: 'Alerts', key: 'a', group: 'Log' },
  audit: { load: () => import('./log.js'), name: 'Audit', key: 'u', group: 'Log' },
  events: { load: () => import('./log.js'), name: 'Events', key: 'e', group: 'Log' },
};

/* "#/jobs/ID?a=b" -> {path: ['jobs', ID], name: 'jobs', id: ID, query: {a: 'b'}} */
function readRoute() {
  const [path, search = ''] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const parts = path.split('/').filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { path: parts, name: parts[0] || '', id: parts[1], query: Object.fromEntries(new URLSearchParams(search)) };
}

/* ---------- sign-in ---------- */

class SignIn extends Component {
  constructor(props) {
    super(props);
    this.state = { problem: null, busy: false };
    this.user = createRef();
  }

  componentDidMount() {
    this.user.current.focus();
  }

  async submit(event) {
    event.preventDefault();
    const { user, password } = event.target.elements;
    this.setState({ busy: true, problem: null });
    try {
      await api.signIn(user.value, password.value);
      this.props.done();
    } catch (problem) {
      this.setState({ busy: false, problem });
      password.value = '';
      password.focus();
    }
  }

  render({ ended }, { problem, busy }) {
    return h('main', { class: 'sign-in' },
      h('form', { class: 'form', onSubmit: (event) => this.submit(event) },
        h('h1', null, 'jobq'),
        h('p', { class: 'about' }, ended ? 'The session has ended. Sign in to go on where you were.' : 'Sign in as a role of PostgreSQL.'),
        h('div', { class: 'field' }, h('label', { for: 'user' }, 'Role'),
          h('input', { id: 'user', name: 'user', ref: this.user, required: true, autocomplete: 'username', autocapitalize: 'none', spellcheck: false })),
        h('div', { class: 'field' }, h('label', { for: 'password' }, 'Password'),
          h('input', { id: 'password', name: 'password', type: 'password', required: true, autocomplete: 'current-password' })),
        problem && h(Trouble, { problem: problem.status === 401 ? { title: 'Not signed in', detail: 'Role or password is wrong, or the role may not connect.' } : problem }),
        h('div', { class: 'buttons' }, h('button', { type: 'submit', class: 'primary', disabled: busy }, busy ? 'Signing in …' : 'Sign in'))));
  }
}

/* ---------- the frame ---------- */

function Menu({ route, shut }) {
  const groups = [...new Set(Object.values(routes).map((r) => r.group))].filter(Boolean);
  const current = route.name === 'runs' ? 'workflows' : route.name;
  return groups.map((group) => h('div', { key: group, class: 'group' },
    h('h2', null, group),
    h('ul', null, Object.entries(routes).filter(([, r]) => r.group === group).map(([name, r]) => h('li', { key: name },
      h('a', { href: link(name), onClick: shut, 'aria-current': current === name ? 'page' : undefined, title: `Keys: g ${r.key}` }, r.name))))));
}

/* Those of a screen that is left, or of a session that has ended. */
function closeDialogs() {
  document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.close());
}

class Frame extends Component {
  constructor(props) {
    super(props);
    this.state = { route: readRoute(), screen: null, problem: null, live: api.live.state, open: false };
    this.main = createRef();
    this.turn = () => this.open(readRoute());
  }

  componentDidMount() {
    addEventListener('hashchange', this.turn);
    this.endLive = api.live.follow((live) => {
      setSkew(api.skew);
      /* browsers remember that a module could not be loaded */
      if (this.state.unloaded && live.data && !live.problem) {
        location.reload();
      }
      this.setState({ live });
    });
    api.live.started || api.live.start();
    this.open(this.state.route);
  }

  componentWillUnmount() {
    removeEventListener('hashchange', this.turn);
    this.endLive();
    api.live.stop();
  }

  componentDidCatch(problem) {
    console.error(problem);
    this.setState({ problem, screen: null });
  }

  async open(route) {
    const known = Object.hasOwn(routes, route.name) && routes[route.name];
    const same = this.state.screen && route.path.join('/') === this.state.route.path.join('/');
    this.opening = route;
    if (same) {
      this.setState({ route });
      return;
    }
    closeDialogs();
    try {
      const screen = known ? await known.load(route.id) : null;
      if (this.opening === route) {
        this.setState({ route, screen, problem: known ? null : { title: 'Not found', detail: `There is no page ${location.hash}.` }, open: false },
          () => this.arrived(route));
      }
    } catch (problem) {
      if (this.opening !== route) {
        return;
      }
      console.error(problem);
      this.setState({ route, screen: null, unloaded: true, problem: { title: 'The page cannot be loaded now', detail: 'It is tried again when the server answers.' }, open: false });
    }
  }

  /* Focus goes to the new screen's heading, so that readers of the screen notice it. */
  arrived(route) {
    const { screen } = this.state;
    const title = typeof screen?.title === 'function' ? screen.title(route) : screen?.title;
    document.title = [title, 'jobq'].filter(Boolean).join(' · ');
    if (this.went) {
      scrollTo(0, 0);
      (this.main.current?.querySelector('h1') || this.main.current)?.focus({ preventScroll: true });
    }
    this.went = true;
  }

  async leave() {
    if (await act(() => api.signOut())) {
      this.props.left();
    }
  }

  top() {
    const { live, open } = this.state;
    const health = live.data?.health?.status;
    return h('header', { class: 'brand' },
      h('a', { href: '#/', class: 'name' }, 'jobq'),
      health && h('a', { href: '#/', class: 'health' }, h(Status, { status: live.problem?.passing ? 'info' : health }, live.problem?.passing ? 'no answer' : health)),
      h(Button, { class: 'menu-button', icon: 'menu', 'aria-expanded': String(open), 'aria-controls': 'menu', onClick: () => this.setState({ open: !open }) }, 'Menu'));
  }

  side() {
    const { session } = this.props;
    return h('nav', { id: 'menu', class: this.state.open ? 'open' : '', 'aria-label': 'Pages' },
      h(Button, { class: 'find', icon: 'search', onClick: () => keysModule().then((m) => m.openPalette(context())) }, 'Go to …', h('kbd', null, 'Ctrl K')),
      h(Menu, { route: this.state.route, shut: () => this.setState({ open: false }) }),
      h('div', { class: 'who' },
        h('span', { title: 'role @ database' }, h('b', null, session.user), ' @ ', session.database),
        h('span', { class: 'row' },
          h(Button, { class: 'quiet', onClick: () => keysModule().then((m) => m.openHelp(routes)) }, 'Keys', h('kbd', null, '?')),
          session.csrf && h(Button, { class: 'quiet', icon: 'out', onClick: () => this.leave() }, 'Sign out'))));
  }

  render({ session }, { route, screen, problem, live }) {
    const Screen = screen?.default;
    return h(Fragment, null,
      h('a', { class: 'skip', href: '#main', onClick: (event) => {
        event.preventDefault();
        this.main.current.focus();
      } }, 'Skip to the content'),
      h('div', { class: 'frame' },
        h('div', { class: 'side' }, this.top(), this.side()),
        h('main', { id: 'main', ref: this.main, tabIndex: -1 },
          live.problem?.passing && live.data && h(Stale, { at: live.at, problem: live.problem, again: () => api.live.again() }),
          problem && h(Fragment, null, h(Head, { title: problem.title || 'Trouble' }), h(Trouble, { problem })),
          Screen ? h(Screen, { key: route.path.join('/'), route, api, session }) : problem || h(Loading))));
  }
}

/* ---------- keys ---------- */

const keysModule = () => import('./keys.js');
const context = () => ({ routes, api });
let afterG = 0;

function inField(target) {
  return target.closest?.('input:not([type=checkbox]), textarea, select, [contenteditable]');
}

function plainKey(event) {
  if (event.key === '?') {
    keysModule().then((m) => m.openHelp(routes));
  } else if (event.key === '/') {
    const field = document.querySelector('main [data-search]');
    if (field) {
      field.focus();
      field.select?.();
    } else {
      keysModule().then((m) => m.openPalette(context()));
    }
  } else if (Date.now() - afterG < 1500) {
    afterG = 0;
    const entry = Object.entries(routes).find(([, r]) => r.key === event.key);
    if (!entry) {
      return false;
    }
    location.assign(link(entry[0]));
  } else if (event.key === 'g') {
    afterG = Date.now();
  } else {
    return takeKey(event);
  }
  return true;
}

addEventListener('keydown', (event) => {
  if (!api.session || document.querySelector('dialog[open]')) {
    return;
  }
  const palette = (event.ctrlKey || event.metaKey) && event.key === 'k';
  if (palette) {
    event.preventDefault();
    keysModule().then((m) => m.openPalette(context()));
  } else if (event.key === 'Escape' && inField(event.target)) {
    /* the browser would empty a search field */
    event.preventDefault();
    event.target.blur();
  } else if (!event.ctrlKey && !event.metaKey && !event.altKey && !inField(event.target) && plainKey(event)) {
    event.preventDefault();
  }
});

/* ---------- the beginning ---------- */

class App extends Component {
  constructor(props) {
    super(props);
    this.state = { session: null, out: false, ended: false, problem: null };
    api.onSignedOut = () => this.state.session && this.signedOut(true);
  }

  componentDidMount() {
    this.begin();
  }

  /* What the screen needs is asked for along with the session, if there was one before. */
  async begin() {
    this.setState({ problem: null });
    const { name, id } = readRoute();
    if (localStorage.getItem(SIGNED_IN)) {
      api.live.start();
      Object.hasOwn(routes, name) && routes[name].load(id).catch(() => {});
    }
    try {
      this.signedIn(await api.readSession());
    } catch (problem) {
      api.live.stop();
      this.setState(problem.status === 401 ? { out: true } : { problem });
    }
  }

  signedIn(session, anew) {
    /* other tabs hear of a new session (below) */
    if (anew || !localStorage.getItem(SIGNED_IN)) {
      localStorage.setItem(SIGNED_IN, String(Date.now()));
    }
    this.setState({ session, out: false });
  }

  signedOut(ended) {
    localStorage.removeItem(SIGNED_IN);
    closeDialogs();
    api.session = null;
    this.setState({ session: null, out: true, ended });
  }

  render(props, { session, out, ended, problem }) {
    if (session) {
      return h(Frame, { session, left: () => this.signedOut(false) });
    }
    if (out) {
      return h(SignIn, { ended, done: () => this.signedIn(api.session, true) });
    }
    return h('main', { class: 'sign-in' }, problem ? h(Trouble, { problem, again: () => this.begin() }) : h(Loading));
  }
}

/* A sign-in in another tab has ended this tab's session: its role and its token have changed. */
addEventListener('storage', (event) => event.key === SIGNED_IN && event.newValue && location.reload());

/* The older address of the list, /admin/jobs?status=&type=, shows the same. */
if (!location.hash && location.pathname.endsWith('/admin/jobs')) {
  const old = new URLSearchParams(location.search);
  location.hash = link('jobs', { status: old.get('status'), job_type: old.get('type'), tenant: old.get('collection_id') });
}
render(h(App), document.getElementById('app'));
