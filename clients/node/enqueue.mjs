// Enqueue on any client or pool of node-pg, in the transaction of the caller.

import { interval, json } from './job.mjs';

// Arguments of jobq.enqueue beyond the payload, with their conversions.
const plain = (value) => value;
const known = {
  priority: plain, delay: interval, scheduled_for: plain, max_attempts: plain, timeout: interval,
  backoff: json, unique_key: plain, on_conflict: plain, unique_for: interval, concurrency_key: plain,
  tenant: plain, metadata: json, keep_completed: interval, keep_dead: interval, after: plain,
  after_rule: plain,
};

// Returns [", name => $n" for each option, their values].  traceparent becomes a key of the
// metadata.
function named({ traceparent, ...options }, first) {
  const values = [];
  let text = '';

  if (traceparent != null) options.metadata = { ...options.metadata, traceparent };
  for (const [key, value] of Object.entries(options)) {
    const name = key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

    if (!Object.hasOwn(known, name)) throw new TypeError(`unknown option of enqueue: ${key}`);
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
