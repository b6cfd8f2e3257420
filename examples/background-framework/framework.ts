// The background jobs of the service, on jobq.
//
//   node framework.js define    makes or changes the job types and schedules
//   node framework.js           works until SIGTERM; serves /jobs, /health, /metrics, /dead-letters
import { createServer } from 'node:http';
import pg from 'pg';
import { Permanent, Retry, Skip, Worker, enqueue, type Job } from 'jobq';
import { HttpError, SwitchedOff, embed, tasks } from './work.js';

interface Definition {
  priority?: number; attempts?: number; backoff?: ['exponential' | 'fixed', delay: string]; timeout?: string;
  keep?: number; keepFailed?: number;      // removeOnComplete, removeOnFail
  critical?: boolean; concurrency?: number; limiter?: [max: number, duration: string];
}
const definitions: Record<string, Definition> = {
  'embedding.generate': { attempts: 3, backoff: ['exponential', '2s'], timeout: '2min', keep: 100, concurrency: 2 },
  'memory.consolidate': { priority: 5, attempts: 3, backoff: ['exponential', '5s'], timeout: '5min', concurrency: 1, critical: true },
  'memory.prune': { priority: -5, attempts: 2, backoff: ['fixed', '1min'], concurrency: 1 },
  'pattern.train': { priority: -10, attempts: 2, backoff: ['fixed', '5min'], timeout: '1h', concurrency: 1 },
  'pattern.detect': { attempts: 3, backoff: ['exponential', '2s'], concurrency: 2 },
  'session.cleanup': { priority: -5, attempts: 3, backoff: ['fixed', '30s'], keep: 10, concurrency: 1 },
  'session.summarize': { attempts: 3, backoff: ['exponential', '2s'], concurrency: 3 },
  'webhook.deliver': { priority: 5, attempts: 10, backoff: ['exponential', '1s'], timeout: '30s', keep: 1000, keepFailed: 5000, concurrency: 10 },
  'email.send': { priority: 10, attempts: 5, backoff: ['exponential', '5s'], timeout: '30s', concurrency: 5, limiter: [10, '1min'] },
  'notification.push': { priority: 10, attempts: 3, backoff: ['exponential', '1s'], timeout: '15s', concurrency: 10 },
  'report.generate': { attempts: 3, backoff: ['exponential', '5s'], timeout: '10min', concurrency: 2 },
  'export.create': { attempts: 3, backoff: ['exponential', '5s'], timeout: '10min', concurrency: 2, critical: true },
  'import.process': { attempts: 3, backoff: ['exponential', '5s'], timeout: '30min', concurrency: 2, critical: true },
  'analytics.aggregate': { priority: -5, attempts: 2, backoff: ['fixed', '1min'], concurrency: 1 },
  'cache.warm': { priority: -10, attempts: 1, keep: 5, concurrency: 2 },
  'health.probe': { attempts: 3, backoff: ['fixed', '1s'], timeout: '10s', keep: 10, concurrency: 1 },
  'embedding.reindex': { priority: -5, attempts: 2, backoff: ['fixed', '1min'], timeout: '1h', concurrency: 1 },
};
// Error classes that no other attempt can change; outcomeOf() has the HTTP statuses.  All else is
// retried.
const permanent = ['ValidationError'];
const schedules: [name: string, cron: string, type: string, payload?: object][] = [
  ['pattern-training', '0 0 2 * * *', 'pattern.train'],
  ['session-cleanup', '0 */15 * * * *', 'session.cleanup'],
  ['memory-pruning', '0 30 3 * * *', 'memory.prune', { below: 1 }],
  ['hourly-analytics', '0 5 * * * *', 'analytics.aggregate'],
  ['weekly-report', '0 0 6 * * MON', 'report.generate', { kind: 'week' }],
];
const backoffFactor = Number(process.env.BACKOFF ?? 1);     // tests are in a hurry

const db = new pg.Pool();
db.on('error', (error: Error) => console.error('an idle connection was lost:', error.message));
const rows = async (sql: string, values: unknown[] = []): Promise<any[]> => (await db.query(sql, values)).rows;
const one = async (sql: string, values: unknown[] = []): Promise<any> => Object.values((await rows(sql, values))[0])[0];

async function define() {
  for (const [name, type] of Object.entries(definitions)) {
    const [kind, delay] = type.backoff ?? ['fixed', '1s'];
    await rows(`SELECT jobq.create_job_type($1, on_conflict => 'replace', base_priority => $2, max_attempts => $3, backoff => $4,
                         backoff_base => $5::interval * $6::float8, timeout => $7, rate_limit => $8, rate_window => $9, critical => $10, options => $11)`,
      [name, type.priority ?? 0, type.attempts ?? 3, kind, delay, backoffFactor, type.timeout ?? '1min', type.limiter?.[0] ?? 0, type.limiter?.[1] ?? '1s',
       type.critical ?? false, { keep_completed_count: type.keep ?? 100, keep_dead_count: type.keepFailed ?? 500, permanent_codes: permanent,
                                 alert: type.critical ?? false, lease_follows_connection: true, min_batch: name === 'embedding.generate' ? { jobs: 32, wait: '1s' } : null }]);
  }
  for (const [name, cron, type, payload = {}] of schedules) {
    await rows(`SELECT jobq.schedule($1, $2, $3, $4, on_conflict => 'replace')`, [name, cron, type, payload]);
  }
}

// Returns what an error means to jobq.
function outcomeOf(error: unknown): unknown {
  if (error instanceof SwitchedOff) return new Skip(error.message);
  if (!(error instanceof HttpError)) return error;
  if (error.retryAfter) return new Retry(error.message, { code: error.code, retryAfter: `${error.retryAfter} s` });
  return error.status === 408 || error.status === 429 || error.status >= 500 ? error : new Permanent(error.message, { code: error.code });
}

// Runs a task; its transaction completes the job, too.
async function handle(job: Job) {
  try {
    return await tasks[job.type]({
      id: job.id, payload: job.payload, attempt: job.attempts, signal: job.signal, db, report: (percent, data) => job.progress(percent, data),
      transaction: async (run) => {
        const client = await db.connect();
        try {
          await client.query('BEGIN');
          const result = await run(client);
          await job.complete(client, result);
          await client.query('COMMIT');
          return result;
        } catch (error) {
          await client.query('ROLLBACK').catch(() => {});    // it may be lost
          throw error;
        } finally {
          client.release();
        }
      },
    });
  } catch (error) {
    throw outcomeOf(error);
  }
}

// Embeds a batch, until all of its jobs are cancelled or lost.
async function embedBatch(jobs: Job[]) {
  const controller = new AbortController();
  const look = () => { if (jobs.every((job) => job.signal.aborted)) controller.abort(jobs[0].signal.reason); };

  for (const job of jobs) job.signal.addEventListener('abort', look);
  look();
  try {
    return await embed(db, jobs.map((job) => job.payload.memory), controller.signal);
  } catch (error) {
    throw outcomeOf(error);
  }
}

const lease = Number(process.env.LEASE ?? 120);
const workers = [new Worker({}, { concurrency: 20, grace: 20, lease }), new Worker({}, { concurrency: 2, grace: 20, lease })];
for (const name of Object.keys(tasks)) workers[0].handler(name, handle, { concurrency: definitions[name].concurrency });
workers[0].handler('embedding.reindex', async () => ({
  texts: (await rows(`SELECT jobq.enqueue('embedding.generate', jsonb_build_object('memory', id), unique_key => id::text) FROM memories WHERE embedding IS NULL`)).length,
}), { concurrency: 1 });
workers[1].handler('embedding.generate', embedBatch, { batch: 32, concurrency: definitions['embedding.generate'].concurrency });

// Health, metrics and dead letters, in the service's shape and names.  A job that waits for its
// time is delayed, as one that waits for another attempt.
const queueCounts = `SELECT job_type, least(due, pending + retry) AS waiting, running AS active, pending + retry + coalesce(blocked, 0) - least(due, pending + retry) AS delayed,
                            dead AS failed, paused FROM jobq.stat_job_types WHERE job_type IS NOT NULL`;
async function health() {
  const answers = await Promise.all([one('SELECT jobq.health()'), rows(queueCounts)]).catch(() => null);
  if (answers === null) return { status: 'unhealthy', database: { connected: false } };
  const [{ status, checks, details }, queues] = answers;
  return { status, timestamp: new Date().toISOString(), database: { connected: true, latencyMs: checks.dispatcher.latency_ms },
           workers: { running: workers.length, active: details.active_workers }, deadLetters: details.dead_letter_count,
           queues: Object.fromEntries(queues.map(({ job_type, ...queue }: any) => [job_type, queue])) };
}
const metricNames = { completed: 'background_jobs_completed_total', died: 'background_jobs_failed_total', retried: 'background_jobs_retried_total',
                      waiting: 'background_queue_waiting', running: 'background_queue_active', dead: 'background_dead_letters' };
async function metrics() {
  const types = await rows('SELECT *, least(due, pending + retry) AS waiting FROM jobq.stat_job_types WHERE job_type IS NOT NULL');
  return Object.entries(metricNames).flatMap(([column, name]) => [
    `# TYPE ${name} ${name.endsWith('total') ? 'counter' : 'gauge'}`, ...types.map((type) => `${name}{job_type="${type.job_type}"} ${type[column]}`)]).join('\n') + '\n';
}
const routes: Record<string, (body: any) => Promise<unknown>> = {
  'POST /jobs': async ({ type, payload, options }) => ({ id: await enqueue(db, type, payload, options) }),
  'GET /health': health,
  'GET /metrics': metrics,
  'GET /dead-letters': () => rows(`SELECT id, job_type, payload, attempts, error_code, error_msg FROM jobq.list_jobs('error', max_rows => 10000)`),
  'POST /dead-letters/retry': async ({ type }) => ({ retried: Number(await one('SELECT jobq.retry_dead_letters($1)', [type])) }),
  'POST /dead-letters/purge': async ({ type }) => ({ purged: Number(await one('SELECT jobq.purge_dead_letters($1)', [type])) }),
};

async function serve(request: any, response: any) {
  let text = '';
  try {
    for await (const part of request.setEncoding('utf8')) text += part;
    const answer = await routes[`${request.method} ${request.url}`]?.(text === '' ? {} : JSON.parse(text));
    response.statusCode = answer === undefined ? 404 : (answer as any).status === 'unhealthy' ? 503 : 200;
    response.end(typeof answer === 'string' ? answer : JSON.stringify(answer ?? {}));
  } catch (error: any) {
    response.statusCode = 400;
    response.end(JSON.stringify({ error: error.message }));
  }
}

if (process.argv[2] === 'define') {
  await define();
} else {
  const server = createServer(serve).listen(Number(process.env.PORT ?? 8080), '127.0.0.1');
  await Promise.all(workers.map((worker) => worker.run()));      // SIGTERM stops both, gracefully
  server.close();
}
await db.end();
