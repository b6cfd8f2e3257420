// Connections that come back: a lost connection is opened again with a back-off, and statements are
// repeated for as long as their callers want.

import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

const connectMs = 5_000;
const closeMs = 1_000;
const keepAliveMs = 30_000;   // without it the system's, two hours: a listener whose peer has vanished

// SQLSTATEs after which another connection may do better: lost connection, restart, too many
// connections, standby, cached plan.
const lost = /^(08|57P|53300|25006|0A000)/;
// Errors that the same statement may not meet again: serialization, resources, locks, an absent
// dispatcher, a cancel, errors of the system.
const passing = /^(40|53|55|57|58|XX)/;
// Those of the server's own faults are given up after some tries, a second and a half.
const fault = /^XX/;
const mostFaults = 6;

// True if the connection is not usable any more.  Errors of the server have a severity.  All
// others, such as EPIPE, which looks like a SQLSTATE, are errors of the connection, except those of
// a missing or wrong password.
export function isLost(error) {
  return (error.severity === undefined && !/^SASL: /.test(error.message)) || lost.test(error.code);
}

// True if a later try may succeed.
export function isTransient(error) {
  return isLost(error) || passing.test(error.code);
}

// The server has not answered: the connection was lost, or the error was transient, and the
// statement is not repeated.
export class Unanswered extends Error {
  constructor(cause) {
    super(cause.message, { cause });
    this.code = cause.code;
  }
}

// Returns a URI for each host of a URI: //a:1,b:2/ or ?host=a,b&port=1,2.  node-pg
// reads one host only.
export function hostsOf(dsn) {
  const [, scheme, user = '', authority, rest] = (typeof dsn === 'string' && /^(\w+:\/\/)([^@/?]*@)?([^/?]*)(.*)$/.exec(dsn)) || [];
  if (scheme === undefined) return [dsn];
  const [path, query = ''] = rest.split('?');
  const lists = [authority, ...['host', 'port'].map((name) => new URLSearchParams(query).get(name) ?? '')].map((list) => list.split(','));
  const most = Math.max(...lists.map((list) => list.length));

  if (most === 1) return [dsn];
  return Array.from({ length: most }, (_, n) => {
    const [host, ...named] = lists.map((list) => list[n] ?? list[0]);
    const parameters = new URLSearchParams(query);

    ['host', 'port'].forEach((name, at) => { if (parameters.has(name)) parameters.set(name, named[at]); });
    return `${scheme}${user}${host}${path}?${parameters}`;
  });
}

// A URI whose authority has no host: scheme, user, port, rest.
const hostless = /^(\w+:\/\/)([^@/?]*@)?(:\d+)?(?![^/?])(.*)$/;

// Names the directory of the server's socket in a DSN without a host, as libpq does; node-pg would
// take TCP to localhost.
function withSocket(dsn) {
  const [, , , portOfUri, rest] = (dsn && hostless.exec(dsn)) || [];
  const query = new URLSearchParams(rest?.split('?')[1]);

  if (dsn && (rest === undefined || query.get('host'))) return dsn;
  const port = query.get('port') || portOfUri?.slice(1) || process.env.PGPORT || 5432;
  const directory = process.env.PGHOST ? [process.env.PGHOST].find((host) => host.startsWith('/'))
    : ['/var/run/postgresql', '/tmp'].find((path) => existsSync(`${path}/.s.PGSQL.${port}`));

  if (directory === undefined) return dsn;
  return dsn ? `${dsn}${dsn.includes('?') ? '&' : '?'}host=${encodeURIComponent(directory)}` : { host: directory, ssl: false };
}

// Returns the options of pg.Client for a URI, with several hosts for the first one.  node-pg before
// 8.9 ignores user and port after the "?" of a URI; they move into its authority.  On a socket
// there is no SSL: a server refuses node-pg's request for it.
export function clientOptions(given) {
  const dsn = withSocket(hostsOf(given)[0]);

  if (typeof dsn !== 'string') return { keepAlive: true, ...dsn };
  const socket = /^\w+:\/\/(?:[^@/?]*@)?%2f|[?&]host=(?:\/|%2f)/i.test(dsn);
  if (!/^\w+:\/\//.test(dsn) || !(socket || /[?&](user|port)=/.test(dsn))) return { connectionString: dsn, keepAlive: true };
  const uri = new URL(dsn.replace(hostless, '$1$2localhost$3$4'));

  for (const [name, part] of [['user', 'username'], ['password', 'password'], ['port', 'port']]) {
    const value = uri.searchParams.get(name);
    if (value !== null) uri[part] = value;
    uri.searchParams.delete(name);
  }
  if (!socket) return { connectionString: uri.href, keepAlive: true };
  for (const name of [...uri.searchParams.keys()]) if (name.startsWith('ssl')) uri.searchParams.delete(name);
  return { connectionString: uri.href, keepAlive: true, ssl: false };
}

class Backoff {
  failures = 0;

  // Returns the next delay in seconds: 0.1 doubling to 10, times 0.5 to 1.
  next() {
    return Math.min(10, 0.1 * 2 ** this.failures++) * (0.5 + Math.random() / 2);
  }
}

// Base of Connection and Listener: opens a client, logs and waits after a failure.
class Link {
  client = null;
  closed = false;
  opened = false;   // once at least
  paused = null;    // a promise between two tries
  #connecting = null;
  #backoff = new Backoff();
  #pausing = null;

  constructor(dsn, log) {
    this.dsn = dsn;
    this.log = log;
  }

  // Tries the hosts in turn.  After the first connect each failure is a lost connection, also a
  // refused login, which may be a matter of a moment.
  async open() {
    const hosts = hostsOf(this.dsn);
    let failure;

    for (const dsn of hosts) {
      try {
        return await this.#openOne(dsn, hosts.length > 1);
      } catch (error) {
        failure = error;
      }
      if (this.closed) break;
    }
    throw this.opened ? new Error(`cannot connect: ${failure.message}`, { cause: failure }) : failure;
  }

  // `choosy`: a standby will not do.
  async #openOne(dsn, choosy) {
    const client = new pg.Client({ connectionTimeoutMillis: connectMs, keepAliveInitialDelayMillis: keepAliveMs, ...clientOptions(dsn) });

    client.on('error', () => {});   // the pending query has the error, too
    client.on('end', () => { if (this.client === client) this.drop(); });
    this.#connecting = client;
    try {
      await client.connect();
      if (choosy && (await client.query('SELECT pg_is_in_recovery() AS standby')).rows[0].standby) {
        throw new Error('the server is a standby');
      }
      if (this.closed) throw new Error('the connection is closed');
    } catch (error) {
      client.connection.stream.destroy();
      throw error;
    } finally {
      this.#connecting = null;
    }
    this.client = client;
    this.opened = true;
    return client;
  }

  // Forgets the client and its socket: the server rolls back its transaction.
  drop() {
    this.client?.connection.stream.destroy();
    this.client = null;
  }

  worked() {
    this.#backoff.failures = 0;
  }

  // Waits before the next try; callers share the pause.
  pause(error) {
    this.drop();
    this.paused ??= this.#pause(error).finally(() => { this.paused = null; });
    return this.paused;
  }

  async #pause(error) {
    const delay = this.#backoff.next();

    this.log({ event: 'reconnecting', level: 'warning', error: error.message, delay: Number(delay.toFixed(3)) });
    this.#pausing = new AbortController();
    await sleep(delay * 1000, undefined, { signal: this.#pausing.signal }).catch(() => {});
  }

  // Ends a pause between two tries, and a try to connect.
  hurry() {
    this.#pausing?.abort();
    this.#connecting?.connection.stream.destroy();
  }

  // Ends everything at once: pending statements fail.
  abort() {
    this.closed = true;
    this.hurry();
    this.drop();
  }

  // Closes the connection, within a bounded time.
  async close() {
    const { client } = this;

    this.closed = true;
    this.hurry();
    this.client = null;
    if (client === null) return;
    const timer = setTimeout(() => client.connection.stream.destroy(), closeMs);
    await client.end().catch(() => {});
    clearTimeout(timer);
  }
}

// One connection, one statement at a time.  A statement that is repeated gives way to the others
// between its tries.
export class Connection extends Link {
  #urgent = [];
  #waiting = [];
  #serving = false;

  // `named`: statements are prepared once in each connection.
  constructor(dsn, log, named) {
    super(dsn, log);
    this.named = named;
  }

  // Runs a statement {name, text}.  A transient error is met with the same statement again, on a
  // new connection if need be, while again(error) is true; then it is thrown as Unanswered.
  // `limit`: milliseconds until a connection without an answer counts as lost.  `urgent`: before
  // all that wait.
  async query(statement, values, { again = () => false, limit = 30_000, urgent = false } = {}) {
    for (let delay = 50, tries = 1; ; delay = Math.min(2 * delay, 1000), tries++) {
      try {
        return await this.#turn({ statement, values, limit }, urgent);
      } catch (error) {
        if (!isTransient(error) || (fault.test(error.code) && tries >= mostFaults)) throw error;
        if (this.closed || !again(error)) throw new Unanswered(error);
        if (!isLost(error)) this.log({ event: 'call_delayed', level: 'warning', error: error.message });
        await (this.paused ?? sleep(delay));
        if (this.closed || !again(error)) throw new Unanswered(error);
      }
    }
  }

  #turn(task, urgent) {
    return new Promise((resolve, reject) => {
      Object.assign(task, { resolve, reject });
      (urgent ? this.#urgent : this.#waiting).push(task);
      if (!this.#serving) this.#serve();
    });
  }

  // Runs the statements that wait.  They share a pause, and the error of a connect.
  async #serve() {
    this.#serving = true;
    for (;;) {
      if (this.paused !== null) await this.paused;
      const task = this.#urgent.shift() ?? this.#waiting.shift();
      if (task === undefined) break;
      try {
        if (this.closed) throw new Error('the connection is closed');
        const client = this.client ?? await this.open();
        task.resolve(await this.#send(client, task));
      } catch (error) {
        const unconnected = this.client === null ? [...this.#urgent.splice(0), ...this.#waiting.splice(0)] : [];

        if (isLost(error) && !this.closed) this.pause(error);
        for (const { reject } of [task, ...unconnected]) reject(error);
      }
    }
    this.#serving = false;
  }

  // The result has sentAt, the time when the statement was sent.
  async #send(client, { statement, values, limit }) {
    const { name, text } = statement;
    const sentAt = performance.now();
    const timer = setTimeout(() => client.connection.stream.destroy(), limit);

    try {
      const result = await client.query({ name: this.named ? name : undefined, text, values });
      this.worked();
      result.sentAt = sentAt;
      return result;
    } catch (error) {
      if (isLost(error)) this.drop();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }
}

// A connection that listens.  `wake` is called at each notification, and after
// each connect: notifications before it are lost.
export class Listener extends Link {
  async run(types, wake) {
    while (!this.closed) {
      try {
        const client = await this.open();
        const gone = new Promise((resolve) => client.once('end', resolve));

        client.on('notification', wake);
        for (const type of types) {
          const { rows } = await client.query('SELECT jobq.channel($1) AS channel', [type]);
          await client.query(`LISTEN ${client.escapeIdentifier(rows[0].channel)}`);
        }
        this.worked();
        wake();
        await gone;
        if (!this.closed) await this.pause(new Error('the listening connection was lost'));
      } catch (error) {
        if (!this.closed) await this.pause(error);
      }
    }
  }
}
