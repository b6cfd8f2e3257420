// Enqueue on any client or pool of node-pg, in the transaction of the caller.

import { interval, json } from './job.mjs';

// Arguments of jobq.enqueue beyond the payload, with their conversions.
const plain = (value) => value;
const backoff = (value) => {
  if (value?.delay !== undefined) throw new TypeError('unknown option of backoff: delay (base here)');
  return json(value && { ...value, base: interval(value.base) ?? undefined, max: interval(value.max) ?? undefined });
};
const known = {
  priority: plain, delay: interval, scheduled_for: plain, max_attempts: plain, timeout: interval,
  backoff, unique_key: plain, on_conflict: plain, unique_for: interval, concurrency_key: plain,
  tenant: plain, metadata: json, keep_completed: interval, keep_dead: interval, after: plain,
  after_rule: plain,
};
// Those of BullMQ, as a hint.
const foreign = {
  attempts: 'maxAttempts', jobId: 'uniqueKey', removeOnComplete: 'keepCompleted', removeOnFail: 'keepDead',
  parent: 'after', repeat: 'jobq.schedule',
};

// Returns [", name => $n" for each option, their values].  traceparent becomes a key of the
// metadata.
function named({ traceparent, ...options }, first) {
  const values = [];
  let text = '';

  if (traceparent != null) options.metadata = { ...options.metadata, traceparent };
  for (const [key, value] of Object.entries(options)) {
    const name = key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

    if (!Object.hasOwn(known, name)) {
      const hint = Object.hasOwn(foreign, key) ? ` (${foreign[key]} here)` : '';
      throw new TypeError(`unknown option of enqueue: ${key}${hint}`);
    }
    if (value === undefined) continue;
    values.push(known[name](value));
    text += `, ${name} => $${first + values.length - 1}`;
  }
  return [text, values];
}

// Enqueues a job and returns its id.
export async function enqueue(client, type, payload = {}, options = {}) {
  const [text, values] = named(options, 3);
  const { rows } = await client.query(`SELECT jobq.enqueue($1, $2${text}) AS id`, [type, json(payload), ...values]);

  return rows[0].id;
}

// Enqueues a job for each payload and returns the ids in their order.
export async function enqueueMany(client, type, payloads, options = {}) {
  const [text, values] = named(options, 3);
  const { rows } = await client.query(`SELECT jobq.enqueue_many($1, $2::jsonb[]${text}) AS id`,
    [type, payloads.map(json), ...values]);

  return rows.map((row) => row.id);
}
