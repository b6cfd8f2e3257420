/*
 * Requests to jobq-web, and data that stays fresh.
 *
 * An Api belongs to the page. Its calls return the JSON of the reply or throw
 * a Problem. watch() repeats a GET while the tab is visible; live is the
 * overview, by the stream if the server has one, else by repeated requests.
 * Data that was read stays when the server is gone: the state then has both
 * data and problem, and comes back by itself.
 *
 * readJson and writeJson keep numbers that JavaScript has not.
 */

const BASE = new URL('../api/v1/', import.meta.url);
const TIMEOUT_MS = 20000;
const POLL_MS = 2000;
const SLOWEST_MS = 30000;
/* The stream is none of the requests that the first picture waits for. */
const STREAM_AFTER_MS = 1000;
/* After a refusal: there are too many streams, or requests. */
const STREAM_AGAIN_MS = 60000;
/* the server writes each 15 s at least */
const SILENT_MS = 35000;
const PAGE = 200;
/* A list that is read whole ends there. */
const MOST_ROWS = 2000;
/* Reasons with which a stream ends because the person is no longer signed in. */
const OUT = ['signed_out', 'idle', 'expired', 'refused'];

/* ---------- JSON ---------- */

/* PostgreSQL has no text with a zero byte; one that is typed has not the rest. */
const TAG = Math.random().toString(36).slice(2);
const MARK = `\u0000${TAG}:`;
const MARKED = new RegExp(`"\\\\u0000${TAG}:([^"]+)"`, 'g');
const LONG = /\d[\d.]{15}|\d[eE][+-]?\d{3}/;
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;

/*
 * A number with more digits than JavaScript's have, as 9007199254740993: it is
 * written as it was read. Of the server's replies only what jobs carry has
 * such numbers, the page computes with others.
 */
class Exact {
  constructor(text) {
    this.text = text;
  }

  toJSON() {
    return MARK + this.text;
  }

  toString() {
    return this.text;
  }
}

const CARRIED = new Set(['payload', 'result', 'metadata', 'progress_data', 'error_details', 'data', 'old', 'new', 'steps', 'output', 'options', 'max_live', 'max_bytes']);

function restore(value, carried) {
  if (typeof value === 'string' && value.startsWith(MARK)) {
    const digits = value.slice(MARK.length);
    return carried ? new Exact(digits) : Number(digits);
  }
  if (value !== null && typeof value === 'object') {
    for (const key of Object.keys(value)) {
      value[key] = restore(value[key], carried || CARRIED.has(key));
    }
  }
  return value;
}

/* carried: all of it is a value that jobs carry. */
export function readJson(text, carried = true) {
  const value = JSON.parse(text);
  if (!LONG.test(text)) {
    return value;
  }
  const marked = text.replace(TOKENS, (token) => (token[0] === '"' || !LONG.test(token) || String(Number(token)) === token
    ? token : JSON.stringify(MARK + token)));
  return restore(JSON.parse(marked), carried);
}

export function writeJson(value, space) {
  return JSON.stringify(value ?? null, null, space).replace(MARKED, '$1');
}

/* ---------- requests ---------- */

/* An error of RFC 9457; status 0: the server cannot be reached. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || 'The request failed');
    Object.assign(this, {
      status, title: body.title, detail: body.detail, hint: body.hint,
      argument: body.argument, sqlstate: body.sqlstate, more: body.server_detail,
    });
  }

  /* The server may answer later. */
  get passing() {
    return this.status === 0 || this.status === 429 || (this.status >= 500 && this.status !== 501) || /^40/.test(this.sqlstate ?? '');
  }
}

function url(path, query) {
  const parts = Array.isArray(path) ? path : path.split('/');
  const at = new URL(parts.map(encodeURIComponent).join('/'), BASE);
  for (const [name, value] of Object.entries(query || {})) {
    /* an empty tenant is one: jobs without a tenant */
    if (value !== undefined && value !== null && (value !== '' || name === 'tenant')) {
      at.searchParams.set(name, typeof value === 'object' ? writeJson(value) : value);
    }
  }
  return at;
}

async function problemOf(reply) {
  let body = {};
  try {
    body = await reply.json();
  } catch {
    /* a proxy's page */
  }
  /* {"ok": false}: the call was made and did nothing */
  const detail = body.ok !== false ? undefined : reply.status === 404 ? 'There is no such job.' : 'Its state does not allow that.';
  return new Problem(reply.status, { title: reply.statusText || `Status ${reply.status}`, detail, ...body });
}

function unreachable(error) {
  const late = error.name === 'TimeoutError';
  return new Problem(0, {
    title: 'No connection',
    detail: late ? 'the server has not answered for 20 seconds' : 'the server cannot be reached',
  });
}

export class Api {
  constructor() {
    this.session = null;
    this.skew = 0;
    this.onSignedOut = () => {};
    this.live = new Live(this);
  }

  get(path, query, options) {
    return this.send('GET', path, { query, ...options });
  }

  /* A list whole, up to MOST_ROWS: {items, next}; next is null if that is all. */
  async all(path, query, options) {
    const items = [];
    let next;
    do {
      const page = await this.get(path, { ...query, limit: PAGE, cursor: next }, options);
      items.push(...page.items);
      next = page.next;
    } while (next && items.length < MOST_ROWS);
    return { items, next };
  }

  post(path, body = {}) {
    return this.send('POST', path, { body });
  }

  put(path, body = {}) {
    return this.send('PUT', path, { body });
  }

  patch(path, body = {}) {
    return this.send('PATCH', path, { body });
  }

  del(path, query) {
    return this.send('DELETE', path, { query });
  }

  /* Sends a request. path: 'jobs/ID' or ['types', name]; aborted by signal. */
  async send(method, path, { query, body, signal } = {}) {
    const headers = { Accept: 'application/json' };
    const limit = AbortSignal.timeout(TIMEOUT_MS);
    let reply;
    let result;
    if (body !== undefined) {
      headers['Content-Type'] = 'application/json';
    }
    if (method !== 'GET' && this.session?.csrf) {
      headers['X-Csrf-Token'] = this.session.csrf;
    }
    try {
      reply = await fetch(url(path, query), {
        method, headers, cache: 'no-store', redirect: 'error',
        body: body === undefined ? undefined : writeJson(body),
        signal: signal ? AbortSignal.any([signal, limit]) : limit,
      });
      this.takeClock(reply);
      if (!reply.ok) {
        throw await problemOf(reply);
      }
      result = readJson(await reply.text(), false);
    } catch (error) {
      if (error instanceof Problem) {
        if (error.status === 401 && String(path) !== 'session') {
          this.onSignedOut();
        }
        throw error;
      }
      if (signal?.aborted) {
        throw error;
      }
      throw unreachable(error);
    }
    return result;
  }

  /* Times on the page are relative to the server's clock. */
  takeClock(reply) {
    const date = Date.parse(reply.headers.get('Date'));
    if (date) {
      const skew = date - Date.now();
      this.skew = Math.abs(skew) < 2000 ? 0 : skew;
    }
  }

  async signIn(user, password) {
    this.session = await this.post('session', { user, password });
    return this.session;
  }

  async readSession() {
    this.session = await this.get('session');
    return this.session;
  }

  async signOut() {
    await this.del('session');
    this.session = null;
  }

  can(right) {
    return Boolean(this.session?.can?.[right]);
  }

  /*
   * Calls take({data, problem, at}) with each reply of a GET, and again every
   * so many ms (0: once) while the tab is visible. Returns {stop, again}.
   * all: it is a list, and all its pages are read.
   */
  watch(path, query, every, take, all) {
    const state = { data: undefined, problem: null, at: 0 };
    let timer = 0;
    let fails = 0;
    let abort = null;
    let stopped = false;
    const visible = () => document.visibilityState === 'visible';
    const plan = () => {
      clearTimeout(timer);
      const pause = state.problem?.passing ? Math.min(POLL_MS * 2 ** fails, SLOWEST_MS) : every;
      const wanted = every > 0 ? !state.problem || state.problem.passing : state.problem?.passing;
      if (!stopped && pause && wanted && visible()) {
        timer = setTimeout(ask, pause);
      }
    };
    const ask = async () => {
      if (stopped) {
        return;
      }
      clearTimeout(timer);
      abort?.abort();
      abort = new AbortController();
      const { signal } = abort;
      try {
        const data = await this[all ? 'all' : 'get'](path, query, { signal });
        Object.assign(state, { data, problem: null, at: Date.now() });
        fails = 0;
      } catch (problem) {
        if (signal.aborted) {
          return;
        }
        state.problem = problem;
        fails++;
      }
      take({ ...state });
      plan();
    };
    const turned = () => {
      if (visible() && (every > 0 || state.problem)) {
        ask();
      } else {
        clearTimeout(timer);
      }
    };
    document.addEventListener('visibilitychange', turned);
    ask();
    return {
      again: ask,
      stop() {
        document.removeEventListener('visibilitychange', turned);
        clearTimeout(timer);
        abort?.abort();
        stopped = true;
      },
    };
  }
}

/* The overview, once for all parts of the page that show some of it. */
class Live {
  constructor(api) {
    this.api = api;
    this.state = { data: undefined, problem: null, at: 0 };
    this.listeners = new Set();
    this.changes = new Set();
    this.poll = null;
    this.source = null;
    this.refused = 0;
    document.addEventListener('visibilitychange', () => this.started && this.start());
  }

  /* Calls take(state) now and after each reply; returns what ends that. */
  follow(take) {
    this.listeners.add(take);
    take(this.state);
    return () => this.listeners.delete(take);
  }

  /* Calls take([job types]) when jobs of these have changed; null: perhaps all. */
  onChange(take) {
    this.changes.add(take);
    return () => this.changes.delete(take);
  }

  start() {
    this.end();
    this.started = true;
    if (document.visibilityState !== 'visible') {
      return;
    }
    this.repeat();
  }

  stop() {
    this.started = false;
    this.end();
    this.state = { data: undefined, problem: null, at: 0 };
  }

  end() {
    clearTimeout(this.opening);
    clearTimeout(this.silence);
    this.poll?.stop();
    this.source?.close();
    this.poll = this.source = null;
  }

  repeat() {
    this.poll ??= this.api.watch('overview', null, POLL_MS, (state) => {
      /* what the stream or an earlier watch has read stays, but not for who may no longer see it */
      const kept = state.problem?.status === 403 ? undefined : this.state.data;
      this.take(state.data && !state.problem ? state : { ...this.state, data: kept, problem: state.problem });
      if (!state.problem && !this.source && Date.now() - this.refused > STREAM_AGAIN_MS) {
        clearTimeout(this.opening);
        this.opening = setTimeout(() => this.openStream(), STREAM_AFTER_MS);
      }
      this.changes.forEach((take) => take(null));
    });
  }

  again() {
    this.start();
  }

  take(state) {
    this.state = state;
    this.listeners.forEach((take) => take(state));
  }

  /* A stream that has been silent for so long is a connection that was lost without a word. */
  heard() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => {
      this.source?.close();
      this.source = null;
      this.repeat();
    }, SILENT_MS);
  }

  /* The stream takes over from the repeated requests once it has spoken. */
  openStream() {
    const source = new EventSource(new URL('stream', BASE));
    this.source = source;
    this.heard();
    source.addEventListener('overview', (event) => {
      this.heard();
      this.poll?.stop();
      this.poll = null;
      this.take({ data: JSON.parse(event.data), problem: null, at: Date.now() });
    });
    source.addEventListener('changed', (event) => {
      this.heard();
      const { job_types: types } = JSON.parse(event.data);
      this.changes.forEach((take) => take(types));
    });
    source.addEventListener('stale', () => {
      this.heard();
      this.take({ ...this.state, problem: new Problem(503, { title: 'No answer from PostgreSQL', detail: 'PostgreSQL does not answer' }) });
    });
    source.addEventListener('bye', (event) => {
      this.end();
      if (OUT.includes(JSON.parse(event.data).reason)) {
        this.api.onSignedOut();
      } else {
        this.repeat();
      }
    });
    source.addEventListener('error', () => {
      /* closed: the server has refused it */
      if (source.readyState === EventSource.CLOSED) {
        this.refused = Date.now();
      }
      source.close();
      clearTimeout(this.silence);
      this.source = null;
      this.repeat();
    });
  }
}
