// Tells the server how attempts ended.  Completions that come while a statement
// is under way are told together in the next one.

import { Unanswered, isLost } from './connection.mjs';
import { Failure, bounded, interval, json } from './job.mjs';

const sql = {
  complete: {
    name: 'jobq_complete',
    text: `SELECT jobq.complete($1, $2, $3) AS done FROM ${bounded(4)}`,
  },
  completeMany: {
    name: 'jobq_complete_many',
    text: `SELECT jobq.complete_many($1::uuid[], $2::uuid[], $3::jsonb[]) AS id FROM ${bounded(4)}`,
  },
  fail: {
    name: 'jobq_fail',
    text: `SELECT jobq.fail($1, $2, $3, retryable => $4, error_code => $5, retry_after => $6::interval,
                            details => $7) AS outcome FROM ${bounded(8)}`,
  },
  skip: {
    name: 'jobq_skip',
    text: `SELECT jobq.skip_job($1, $2, reason => $3, result => $4) AS done FROM ${bounded(5)}`,
  },
  snooze: {
    name: 'jobq_snooze',
    text: `SELECT jobq.snooze_job($1, $2, $3::interval, reason => $4) AS done FROM ${bounded(5)}`,
  },
};
const mostInOneStatement = 1000;
const enough = 100;       // completions for a statement, while handlers have other jobs to run
const collectMs = 5;      // or so long

// Returns a result as JSON text.
export function resultText(result) {
  try {
    return json(result);
  } catch (error) {
    throw Object.assign(new TypeError(error.message), { code: '22030' });
  }
}

// Replaces the characters that a text or jsonb of PostgreSQL cannot hold.
function storable(text) {
  return text == null ? null : String(text).toWellFormed?.().replaceAll('\0', '\uFFFD')
    ?? String(text).replace(/[\0\uD800-\uDFFF]/gu, '\uFFFD');
}

function storableJson(value) {
  try {
    return json(JSON.parse(json(value), (_, part) => (typeof part === 'string' ? storable(part) : part)));
  } catch {
    return null;    // no JSON
  }
}

// Returns the code of an error, a text or a number, or else its name or that of its class.  The
// number of a DOMException says less than its name, and an object is no code.
export function codeOf(error) {
  const name = error?.name === 'Error' ? error.constructor.name : error?.name;
  const given = !(error instanceof DOMException) && ['string', 'number'].includes(typeof error?.code) ? error.code : null;
  const code = given ?? (name === 'Error' || error instanceof Failure ? null : name);

  // 255 bytes are the most that the server takes.
  return code == null || code === '' ? null : Buffer.from(String(code)).subarray(0, 255).toString().replace(/\uFFFD$/, '');
}

export class Settlements {
  #waiting = [];
  #flushing = false;
  #hurry = null;

  constructor(worker) {
    this.worker = worker;
  }

  // Completes a job: {lease, result, resolve(completed), reject(error)}; completed is false if the
  // job is lost.
  add(end) {
    this.#waiting.push(end);
    if (!this.#flushing) this.#flush();
    else if (this.#waiting.length >= enough) this.hurry();
  }

  async #flush() {
    this.#flushing = true;
    await null;   // handlers that end in the same turn are told together
    while (this.#waiting.length > 0) {
      if (this.#waiting.length < enough && this.worker.hasAhead) await this.#collect();
      await this.#tell(this.#waiting.splice(0, mostInOneStatement));
    }
    this.#flushing = false;
  }

  // Waits for further completions.
  #collect() {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, collectMs);

      this.#hurry = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  // Ends such a wait: it would delay other jobs.
  hurry() {
    this.#hurry?.();
    this.#hurry = null;
  }

  // Tells completions together.  After an error each is told alone: one of them has a bad result,
  // or a locked row.
  async #tell(ends) {
    if (ends.length === 1) return this.#tellOne(ends[0]);
    const leases = ends.map((end) => end.lease);

    try {
      const { rows } = await this.worker.call(sql.completeMany,
        [leases.map((lease) => lease.id), leases.map((lease) => lease.token), ends.map((end) => end.result), this.worker.lockMs],
        leases, isLost);
      const done = new Set(rows.map((row) => row.id));
      for (const end of ends) end.resolve(done.has(end.lease.id));
    } catch {
      for (const end of ends) this.#tellOne(end, this.worker.shortLockMs);
    }
  }

  // Tells one completion.  After an error that is no lost connection the others go on.
  async #tellOne(end, lockMs = 0) {
    const { lease, result } = end;

    try {
      const { rows } = await this.worker.call(sql.complete, [lease.id, lease.token, result, lockMs || this.worker.lockMs],
        [lease], lockMs ? undefined : isLost);
      end.resolve(rows[0].done);
    } catch (error) {
      if (lockMs === 0 && error instanceof Unanswered && lease.live) this.#tellOne(end, this.worker.shortLockMs);
      else end.reject(error);
    }
  }

  // Returns retry, error or lost.  Libraries have errors with such properties, too: only a Failure
  // decides.
  async fail(lease, error, retryable = error instanceof Failure ? error.retryable : null) {
    const code = codeOf(error);
    const details = error?.details ?? (error?.stack ? { stack: error.stack } : undefined);
    const tell = (...values) => this.worker.call(sql.fail, [lease.id, lease.token, ...values, this.worker.lockMs], [lease]);
    let answer;

    try {
      answer = await tell(storable(error?.message ?? error) || 'unknown error', retryable ?? null, storable(code),
        error instanceof Failure ? interval(error.retryAfter) : null, storableJson(details));
    } catch (refused) {
      if (refused instanceof Unanswered) throw refused;
      const message = `${error?.message ?? error} (not all of the error can be stored: ${refused.message})`;
      answer = await tell(storable(message), retryable ?? null, null, null, null);
    }
    return answer.rows[0].outcome;
  }

  async skip(lease, reason, resultText) {
    const { rows } = await this.worker.call(sql.skip,
      [lease.id, lease.token, storable(reason), resultText, this.worker.lockMs], [lease]);

    return rows[0].done;
  }

  async snooze(lease, delay, reason) {
    const { rows } = await this.worker.call(sql.snooze,
      [lease.id, lease.token, interval(delay), storable(reason), this.worker.lockMs], [lease]);

    return rows[0].done;
  }
}
