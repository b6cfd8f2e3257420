// The work of the service: a function for each job type.  It knows nothing of queues; framework.ts
// and bullmq.ts both call it.
import { createHmac } from 'node:crypto';

export interface Task {
  id: string;
  payload: any;
  attempt: number;
  signal: AbortSignal;
  db: any;    // a pool of pg
  report(percent: number, data: object): Promise<void>;
  // Runs statements in a transaction that ends together with the task, where the queue can do that.
  transaction<T>(run: (client: any) => Promise<T>): Promise<T>;
}

export class ValidationError extends Error {}
export class SwitchedOff extends Error {}
export class HttpError extends Error {
  readonly code: string;
  constructor(readonly status: number, readonly retryAfter?: number) {
    super(`HTTP status ${status}`);
    this.code = `http_${status}`;
  }
}

const world = process.env.WORLD;                                     // the service's neighbours
const offAfter = Number(process.env.WEBHOOK_OFF_AFTER ?? 25);       // failures within 24 hours

// Returns the answer.  A status that is good means delivered, whatever the body is.
async function post(url: string, body: unknown, signal: AbortSignal, headers: Record<string, string> = {}) {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const answer = await fetch(url, { method: 'POST', body: text, signal, headers: { 'Content-Type': 'application/json', ...headers } });

  if (!answer.ok) throw new HttpError(answer.status, Number(answer.headers.get('Retry-After')) || undefined);
  return answer;
}
async function deliver(...request: Parameters<typeof post>) {
  const { status, body } = await post(...request);

  await body?.cancel();
  return { status };
}

// Embeds the texts of memories with one call; a failure is a row for the whole batch.
export async function embed(db: any, ids: number[], signal: AbortSignal) {
  const { rows: memories } = await db.query('SELECT id, content FROM memories WHERE id = ANY ($1)', [ids]);

  if (memories.length === 0) return;      // consolidated meanwhile
  try {
    const answer = await post(`${world}/embed`, { texts: memories.map((memory: any) => memory.content) }, signal);
    const { vectors } = await answer.json() as any;
    if (vectors.length !== memories.length) throw new Error('a vector for each text is missing');
    for (const [at, { id }] of memories.entries()) await db.query('UPDATE memories SET embedding = $2 WHERE id = $1', [id, vectors[at]]);
  } catch (error: any) {
    await db.query('INSERT INTO embedding_failures (texts, error) VALUES ($1, $2)', [ids.length, error.message]);
    throw error;
  }
}

// Delivers an event; each attempt is a row.  Repeated failures within 24 hours switch the webhook
// off.
async function deliverWebhook({ id, payload, attempt, signal, db }: Task) {
  const { rows: [hook] } = await db.query('SELECT * FROM webhooks WHERE id = $1', [payload.webhook]);
  const began = performance.now();
  const row = (status: number | null, error: string | null) => db.query(
    'INSERT INTO webhook_deliveries (webhook_id, delivery, attempt, status, error, duration_ms) VALUES ($1, $2, $3, $4, $5, $6)',
    [hook.id, id, attempt, status, error, Math.round(performance.now() - began)]);

  if (hook === undefined) throw new ValidationError(`no webhook ${payload.webhook}`);
  if (!hook.active) throw new SwitchedOff(hook.off_reason);
  const body = JSON.stringify({ id, event: payload.event, data: payload.data });
  const signature = createHmac('sha256', hook.secret).update(body).digest('hex');
  try {
    const { status } = await deliver(hook.url, body, signal, { 'X-Delivery': id, 'X-Signature': `sha256=${signature}` });
    await row(status, null);
  } catch (error: any) {
    await row(error.status ?? null, error.message);
    await db.query(`UPDATE webhooks SET active = false, off_reason = n || ' failures within 24 hours'
                      FROM (SELECT count(*) n FROM webhook_deliveries WHERE webhook_id = $1 AND error IS NOT NULL AND at > now() - interval '24 hours') f
                     WHERE id = $1 AND active AND n >= $2`, [hook.id, offAfter]);
    throw error;
  }
}

// Memories of a user about one topic become one, in steps that it reports.
async function consolidate({ payload, report, transaction }: Task) {
  return transaction(async (client) => {
    const { rows: topics } = await client.query('SELECT topic FROM memories WHERE user_id = $1 GROUP BY 1 HAVING count(*) > 1 ORDER BY 1', [payload.user]);

    for (const [at, { topic }] of topics.entries()) {
      await client.query(`WITH gone AS (DELETE FROM memories WHERE user_id = $1 AND topic = $2 RETURNING content, weight)
                          INSERT INTO memories (user_id, topic, content, weight)
                          SELECT $1, $2, string_agg(DISTINCT content, ' '), sum(weight) FROM gone`, [payload.user, topic]);
      await report(100 * (at + 1) / topics.length, { phase: 'merge', topic, done: at + 1, of: topics.length });
    }
    return { topics: topics.length };
  });
}

// A task of one statement, whose result is the number of its rows.
const statement = (sql: string, ...names: string[]) => ({ payload, transaction }: Task) => transaction(async (client) => {
  for (const name of names) if (payload[name] === undefined) throw new ValidationError(`${name} is missing`);
  const values = names.map((name) => typeof payload[name] === 'object' ? JSON.stringify(payload[name]) : payload[name]);
  return { rows: (await client.query(sql, values)).rowCount };
});
const message = (path: string) => ({ id, payload, signal }: Task) => deliver(`${world}/${path}`, { id, ...payload }, signal);

export const tasks: Record<string, (task: Task) => Promise<unknown>> = {
  'memory.consolidate': consolidate,
  'memory.prune': statement('DELETE FROM memories WHERE weight < $1', 'below'),
  'pattern.train': statement(`INSERT INTO patterns SELECT word, count(*) FROM memories, string_to_table(content, ' ') word GROUP BY 1
                              ON CONFLICT (word) DO UPDATE SET n = excluded.n`),
  'pattern.detect': statement(`INSERT INTO reports (kind, data) SELECT 'pattern', to_jsonb(p) FROM patterns p WHERE n >= $1`, 'least'),
  'session.cleanup': statement('DELETE FROM sessions WHERE expires_at < now()'),
  'session.summarize': statement(`INSERT INTO reports (kind, data) SELECT 'sessions', jsonb_build_object('user', user_id, 'n', count(*))
                                    FROM sessions WHERE user_id = $1 GROUP BY user_id`, 'user'),
  'webhook.deliver': deliverWebhook,
  'email.send': message('mail'),
  'notification.push': message('push'),
  'report.generate': statement(`INSERT INTO reports (kind, data) SELECT $1, jsonb_build_object('memories', count(*)) FROM memories`, 'kind'),
  'export.create': statement(`INSERT INTO reports (kind, data) SELECT 'export', coalesce(jsonb_agg(to_jsonb(m) - 'embedding'), '[]') FROM memories m WHERE user_id = $1`, 'user'),
  'import.process': statement(`INSERT INTO memories (user_id, topic, content) SELECT $1, m->>'topic', m->>'content' FROM jsonb_array_elements($2::jsonb) m`, 'user', 'memories'),
  'analytics.aggregate': statement(`INSERT INTO reports (kind, data) SELECT 'analytics', coalesce(jsonb_object_agg(topic, n), '{}') FROM (SELECT topic, count(*) n FROM memories GROUP BY 1) t`),
  'cache.warm': statement('SELECT FROM memories WHERE user_id = $1', 'user'),
  'health.probe': ({ payload, signal }) => deliver(payload.url ?? `${world}/status/200`, {}, signal),
};
