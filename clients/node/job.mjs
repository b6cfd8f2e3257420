// Jobs as handlers see them, their leases, and the errors that end an attempt.

import { inspect } from 'node:util';

export class Failure extends Error {
  constructor(message, { code, details, retryAfter, cause } = {}) {
    super(message, { cause });
    this.name = new.target.name;
    Object.assign(this, { code, details, retryAfter });
  }
}

// A failure that another attempt would repeat.
export class Permanent extends Failure {
  retryable = false;
}

// A failure that is retried, after retryAfter when it is given.
export class Retry extends Failure {
  retryable = true;
}

// Anything may be thrown.
export function asError(thrown) {
  return thrown instanceof Error ? thrown : new Error(typeof thrown === 'string' ? thrown : String(thrown?.message ?? inspect(thrown)));
}

export class Skip extends Error {
  constructor(reason = null, result = undefined) {
    super(reason ?? 'skipped');
    Object.assign(this, { reason, result });
  }
}

export class Snooze extends Error {
  constructor(delay, reason = null) {
    super(reason ?? 'snoozed');
    Object.assign(this, { delay, reason });
  }
}

// The reason of job.signal: `reason` is cancel, lost or shutdown.
export class Stopped extends Error {
  constructor(reason) {
    super(`the job was stopped: ${reason}`);
    this.name = 'AbortError';
    this.reason = reason;
  }
}

// The token is no longer valid: another worker may have the job.
export class LeaseLost extends Stopped {
  constructor() {
    super('lost');
  }
}

// Returns what is wrong with a number of seconds that looks like one of milliseconds: a multiple of
// 1000 that is no whole number of hours, or one of 1000 hours.
export function milliseconds(value) {
  if (!(value >= 1000) || value % 1000 !== 0 || (value % 3600 === 0 && value % 3_600_000 !== 0)) return null;
  return `${value} seconds are ${Math.round(value / 60)} minutes: a number is seconds, not milliseconds`;
}

// A duration is a number of seconds, or an interval as text.
export function interval(value) {
  if (typeof value !== 'number') return value ?? null;
  const hint = milliseconds(value);

  if (hint !== null) throw new RangeError(`${hint}; ${value / 1000}, or '${value} seconds'`);
  return `${value} seconds`;
}

// Returns JSON text, or null for no value.
export function json(value) {
  return JSON.stringify(value) ?? null;
}

// Waits for row locks end after $n milliseconds with 55P03, so that a locked job does not hold up
// the others.
export const bounded = (n) => `(SELECT set_config('lock_timeout', $${n}, true)) AS bound`;

// Returns a promise that nothing needs to await: a rejection that no handler looks at would end the
// process, and all other jobs of it.
function handled(promise) {
  promise.catch(() => {});
  return promise;
}

const sql = {
  progress: {
    name: 'jobq_progress',
    text: `SELECT jobq.heartbeat($1, $2, progress => $3, data => $4) AS state FROM ${bounded(5)}`,
  },
  log: {
    name: 'jobq_log',
    text: 'SELECT jobq.log_event($1, level => $2, type => $3, data => $4, id => $5, lease_token => $6)',
  },
};

// A claimed job with its token.  `outcome` is set once, when the worker is done
// with the job: completed, failed, skipped, snoozed, cancelled, lost, released.
export class Lease {
  outcome = null;
  began = null;       // the time when its handler began
  completed = null;   // Job.complete: false while it runs, then true; null again after an error
  stopReason = null;
  reported = null;    // a promise: the server has the last progress, or will not get it
  locked = false;     // its last heartbeat met a lock of the row
  #controller = null;   // made when a handler asks for its signal

  constructor(row, worker) {
    const received = performance.now();

    this.id = row.id;
    this.token = row.lease_token;
    this.worker = worker;
    this.deadline = row.deadline_left == null ? Infinity : received + Number(row.deadline_left) * 1000;
    this.job = new Job(row, this);
    this.renew(received + Number(row.lease_left) * 1000);
  }

  get live() {
    return this.outcome === null && performance.now() < this.expires;
  }

  get signal() {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.stopReason !== null) this.#abort();
    }
    return this.#controller.signal;
  }

  #abort() {
    this.#controller?.abort(this.stopReason === 'lost' ? new LeaseLost() : new Stopped(this.stopReason));
  }

  // Sets the local end of the lease: the job's deadline is never exceeded.
  renew(expires) {
    this.expires = Math.min(expires, this.deadline);
    this.worker.watch(this.expires);
  }

  // Stops the handler: its signal is aborted.
  stop(reason) {
    if (this.stopReason !== null || this.outcome !== null) return;
    this.stopReason = reason;
    this.#abort();
  }

  end(outcome) {
    this.outcome ??= outcome;
  }

  lose() {
    if (this.outcome !== null) return;
    this.stop('lost');
    this.end('lost');
    this.worker.lost(this);
  }

  // Applies an answer of heartbeat(), to a statement sent at sentAt.
  heard(state, sentAt) {
    if (this.outcome !== null) return;
    if (state === 'lost') {
      if (this.completed === null) this.lose();   // else by its own completion
      return;
    }
    this.renew(sentAt + this.worker.leaseMs);
    if (state !== 'cancel' || this.stopReason !== null) return;
    this.stop('cancel');
    this.worker.cancelled(this);
  }
}

// The argument of a handler.
export class Job {
  #lease;
  #deadline;

  constructor(row, lease) {
    this.#lease = lease;
    this.id = row.id;
    this.type = row.job_type;
    this.payload = row.payload;
    this.attempts = row.attempts;
    this.maxAttempts = row.max_attempts;
    this.tenant = row.tenant;
    this.metadata = row.metadata;
    this.progressData = row.progress_data;
    this.leaseToken = row.lease_token;
    this.#deadline = row.deadline_ms;
  }

  get signal() {
    return this.#lease.signal;
  }

  // The trace context of the enqueue, as W3C writes it.
  get traceparent() {
    return this.metadata?.traceparent ?? null;
  }

  get deadline() {
    return this.#deadline === null ? null : new Date(Number(this.#deadline));
  }

  // Stores progress (0 to 100) and data, which the next attempt gets as progressData.  A failure
  // or a release waits for it.
  progress(percent, data) {
    const told = this.#progress(percent, data);

    this.#lease.reported = told.catch(() => {});
    return told;
  }

  async #progress(percent, data) {
    const lease = this.#lease;

    // A stopped job's is stored, too.  After complete() the caller's transaction may hold the row.
    if (lease.completed === null && lease.stopReason !== 'lost') {
      const { rows, sentAt } = await lease.worker.call(sql.progress,
        [this.id, this.leaseToken, percent ?? null, json(data), lease.worker.lockMs], [lease], () => lease.completed === null);
      lease.heard(rows[0].state, sentAt);
    }
    this.signal.throwIfAborted();
  }

  // Stores data for the next attempt.
  checkpoint(data, percent) {
    return this.progress(percent, data);
  }

  // Adds an event to the job's timeline.  A token that is lost is an error of the server, which is
  // not repeated.
  log(message, options) {
    return handled(this.#log(message, options));
  }

  async #log(message, { level = 'info', type = 'log', data } = {}) {
    await this.#lease.worker.call(sql.log, [message, level, type, json(data), this.id, this.leaseToken],
      [this.#lease], (error) => error.code !== '55000');
  }

  // Completes the job in the caller's transaction, on the caller's client.
  // Throws LeaseLost if the job is lost, so that the caller rolls back.
  async complete(client, result) {
    const lease = this.#lease;
    let done;

    this.signal.throwIfAborted();
    lease.completed = false;    // heartbeats would wait for the open transaction
    try {
      ({ rows: [{ done }] } = await client.query('SELECT jobq.complete($1, $2, $3) AS done',
        [this.id, this.leaseToken, json(result)]));
    } finally {
      lease.completed = done ? true : null;    // not done: the end of the handler decides
    }
    if (done) return;
    lease.lose();
    throw new LeaseLost();
  }
}
