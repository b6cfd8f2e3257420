// The background jobs of the service as they were, on BullMQ and Redis.  framework.ts beside it
// does the same on jobq.  No test runs this file.
import { createServer } from 'node:http';
import pg from 'pg';
import { DelayedError, Queue, UnrecoverableError, Worker, type Job, type JobsOptions } from 'bullmq';
import { HttpError, SwitchedOff, ValidationError, embed, tasks } from './work.js';

interface Definition {
  priority?: number; attempts?: number; backoff?: ['exponential' | 'fixed', delayMs: number]; timeoutMs?: number;
  keep?: number; keepFailed?: number;
  critical?: boolean; concurrency?: number; limiter?: [max: number, durationMs: number];
}
const definitions: Record<string, Definition> = {
  'embedding.generate': { attempts: 3, backoff: ['exponential', 2_000], timeoutMs: 120_000, keep: 100, concurrency: 2 },
  'memory.consolidate': { priority: 5, attempts: 3, backoff: ['exponential', 5_000], timeoutMs: 300_000, concurrency: 1, critical: true },
  'memory.prune': { priority: 20, attempts: 2, backoff: ['fixed', 60_000], concurrency: 1 },
  'pattern.train': { priority: 50, attempts: 2, backoff: ['fixed', 300_000], timeoutMs: 3_600_000, concurrency: 1 },
  'pattern.detect': { attempts: 3, backoff: ['exponential', 2_000], concurrency: 2 },
  'session.cleanup': { priority: 20, attempts: 3, backoff: ['fixed', 30_000], keep: 10, concurrency: 1 },
  'session.summarize': { attempts: 3, backoff: ['exponential', 2_000], concurrency: 3 },
  'webhook.deliver': { priority: 5, attempts: 10, backoff: ['exponential', 1_000], timeoutMs: 30_000, keep: 1000, keepFailed: 5000, concurrency: 10 },
  'email.send': { priority: 1, attempts: 5, backoff: ['exponential', 5_000], timeoutMs: 30_000, concurrency: 5, limiter: [10, 60_000] },
  'notification.push': { priority: 1, attempts: 3, backoff: ['exponential', 1_000], timeoutMs: 15_000, concurrency: 10 },
  'report.generate': { attempts: 3, backoff: ['exponential', 5_000], timeoutMs: 600_000, concurrency: 2 },
  'export.create': { attempts: 3, backoff: ['exponential', 5_000], timeoutMs: 600_000, concurrency: 2, critical: true },
  'import.process': { attempts: 3, backoff: ['exponential', 5_000], timeoutMs: 1_800_000, concurrency: 2, critical: true },
  'analytics.aggregate': { priority: 20, attempts: 2, backoff: ['fixed', 60_000], concurrency: 1 },
  'cache.warm': { priority: 50, attempts: 1, keep: 5, concurrency: 2 },
  'health.probe': { attempts: 3, backoff: ['fixed', 1_000], timeoutMs: 10_000, keep: 10, concurrency: 1 },
  'embedding.reindex': { priority: 20, attempts: 2, backoff: ['fixed', 60_000], timeoutMs: 3_600_000, concurrency: 1 },
};
const schedules: [name: string, cron: string, type: string, payload?: object][] = [
  ['pattern-training', '0 0 2 * * *', 'pattern.train'],
  ['session-cleanup', '0 */15 * * * *', 'session.cleanup'],
  ['memory-pruning', '0 30 3 * * *', 'memory.prune', { below: 1 }],
  ['hourly-analytics', '0 5 * * * *', 'analytics.aggregate'],
  ['weekly-report', '0 0 6 * * MON', 'report.generate', { kind: 'week' }],
];

const connection = { url: process.env.REDIS_URL, maxRetriesPerRequest: null };
const db = new pg.Pool();
db.on('error', (error: Error) => console.error('an idle connection was lost:', error.message));

function defaults(type: Definition): JobsOptions {
  const [kind, delay] = type.backoff ?? ['fixed', 1_000];
  return { priority: type.priority ?? 10, attempts: type.attempts ?? 3, backoff: { type: kind, delay },
           removeOnComplete: { count: type.keep ?? 100 }, removeOnFail: { count: type.keepFailed ?? 500 } };
}

// A queue for each type: concurrency and limiter belong to a queue's worker.  So priority orders
// the jobs of a type only.
const queues: Record<string, Queue> = {};
for (const [name, type] of Object.entries(definitions)) queues[name] = new Queue(name, { connection, defaultJobOptions: defaults(type) });
const deadLetters = new Queue('dead-letters', { connection });

function isRetryable(error: unknown): boolean {
  if (error instanceof ValidationError || error instanceof SwitchedOff) return false;
  if (error instanceof HttpError) return error.status === 408 || error.status === 429 || error.status >= 500;
  return true;
}

// A job has no timeout of its own.
async function withTimeout<T>(ms: number, run: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(new Error(`timeout after ${ms} ms`)), ms);
  const aborted = new Promise<never>((_, reject) => { controller.signal.addEventListener('abort', () => reject(controller.signal.reason)); });

  try {
    return await Promise.race([run(controller.signal), aborted]);
  } finally {
    clearTimeout(timer);
  }
}

// Counters live in this process: after a restart they begin anew.
const counters: Record<string, { completed: number; failed: number; retried: number }> = {};

abstract class BaseWorker {
  readonly worker: Worker;
  protected abstract run(job: Job, signal: AbortSignal): Promise<unknown>;

  constructor(readonly name: string) {
    const { concurrency, limiter } = definitions[name];
    const counter = counters[name] = { completed: 0, failed: 0, retried: 0 };

    this.worker = new Worker(name, (job) => this.process(job), {
      connection, autorun: false, concurrency: concurrency ?? 1, lockDuration: 30_000, stalledInterval: 30_000, maxStalledCount: 1,
      ...(limiter && { limiter: { max: limiter[0], duration: limiter[1] } }),
    });
    this.worker.on('completed', () => { counter.completed++; });
    this.worker.on('failed', (job, error) => {
      if (job === undefined) return;
      if (job.attemptsMade < (job.opts.attempts ?? 1) && !(error instanceof UnrecoverableError)) counter.retried++;
      else this.died(job, error).catch((problem) => console.error('a dead letter was not recorded', problem));
    });
    this.worker.on('error', (error) => console.error(`worker ${name}`, error));
  }

  private async process(job: Job): Promise<unknown> {
    try {
      return await withTimeout(definitions[this.name].timeoutMs ?? 60_000, (signal) => this.run(job, signal));
    } catch (error: any) {
      if (error instanceof HttpError && error.retryAfter) {
        await job.moveToDelayed(Date.now() + error.retryAfter * 1000, job.token);      // no attempt: without an end
        throw new DelayedError();
      }
      throw isRetryable(error) ? error : new UnrecoverableError(error.message);
    }
  }

  // A dead letter is a job of another queue, an alert of a third; a crash between loses one.
  private async died(job: Job, error: Error): Promise<void> {
    counters[this.name].failed++;
    await deadLetters.add('dead', { queue: this.name, id: job.id, payload: job.data, attempts: job.attemptsMade, error: error.message });
    if (definitions[this.name].critical) await queues['notification.push'].add('notification.push', { title: `${this.name} failed`, error: error.message });
  }
}

class TaskWorker extends BaseWorker {
  protected run(job: Job, signal: AbortSignal) {
    return tasks[this.name]({
      id: job.id!, payload: job.data, attempt: job.attemptsMade + 1, signal, db, report: async (percent, data) => job.updateProgress({ percent, ...data }),
      transaction: async (run) => {       // a crash after the COMMIT runs it again
        const client = await db.connect();
        try {
          await client.query('BEGIN');
          const result = await run(client);
          await client.query('COMMIT');
          return result;
        } catch (error) {
          await client.query('ROLLBACK').catch(() => {});
          throw error;
        } finally {
          client.release();
        }
      },
    });
  }
}

// A job is a batch: what collects it keeps up to 31 ids in memory, which a crash loses.
class EmbeddingWorker extends BaseWorker {
  protected run(job: Job, signal: AbortSignal) { return embed(db, job.data.memories, signal); }
}
class EmbeddingBatcher {
  private waiting: number[] = [];
  private timer?: ReturnType<typeof setTimeout>;

  async add(id: number) {
    if (!this.waiting.includes(id)) this.waiting.push(id);
    if (this.waiting.length >= 32) return this.flush();
    this.timer ??= setTimeout(() => this.flush(), 1_000);
  }

  async flush() {
    clearTimeout(this.timer);
    this.timer = undefined;
    const memories = this.waiting.splice(0, 32);
    if (memories.length > 0) await queues['embedding.generate'].add('embedding.generate', { memories });
  }
}
const batcher = new EmbeddingBatcher();
class ReindexWorker extends BaseWorker {
  protected async run() {
    const { rows } = await db.query('SELECT id FROM memories WHERE embedding IS NULL');
    for (const { id } of rows) await batcher.add(id);
    return { texts: rows.length };
  }
}

class WorkerManager {
  readonly workers = Object.keys(definitions).map((name) =>
    name === 'embedding.generate' ? new EmbeddingWorker(name) : name === 'embedding.reindex' ? new ReindexWorker(name) : new TaskWorker(name));

  async start() {
    for (const [name, pattern, type, payload = {}] of schedules) {
      await queues[type].upsertJobScheduler(name, { pattern, tz: 'UTC' }, { name: type, data: payload });
    }
    for (const { worker } of this.workers) worker.run().catch((error) => console.error(error));
  }

  async stop(graceMs: number) {
    const closed = Promise.all(this.workers.map(({ worker }) => worker.close()));
    const late = new Promise((resolve) => { setTimeout(resolve, graceMs, 'late').unref(); });

    await batcher.flush();
    if (await Promise.race([closed, late]) === 'late') await Promise.all(this.workers.map(({ worker }) => worker.close(true)));
    await Promise.all([...Object.values(queues), deadLetters].map((queue) => queue.close()));
    await db.end();
  }
}
const manager = new WorkerManager();

async function counts() {
  return Promise.all(Object.entries(queues).map(async ([name, queue]) =>
    [name, { ...await queue.getJobCounts('waiting', 'prioritized', 'active', 'delayed', 'failed'), paused: await queue.isPaused() }] as const));
}
async function health() {
  const began = performance.now();

  const dead = await deadLetters.count().catch(() => null);

  if (dead === null) return { status: 'unhealthy', database: { connected: false } };
  const latencyMs = performance.now() - began;
  const running = manager.workers.filter(({ worker }) => worker.isRunning()).length;
  return { status: running === 0 ? 'unhealthy' : running < manager.workers.length || dead > 100 || latencyMs > 100 ? 'degraded' : 'healthy',
           timestamp: new Date().toISOString(), database: { connected: true, latencyMs }, workers: { running }, deadLetters: dead, queues: Object.fromEntries(await counts()) };
}
async function metrics() {
  const now = await counts();
  const family = (name: string, kind: string, value: (type: string, queue: any) => number) =>
    [`# TYPE ${name} ${kind}`, ...now.map(([type, queue]) => `${name}{job_type="${type}"} ${value(type, queue)}`)];

  return [...family('background_jobs_completed_total', 'counter', (type) => counters[type].completed),
          ...family('background_jobs_failed_total', 'counter', (type) => counters[type].failed),
          ...family('background_jobs_retried_total', 'counter', (type) => counters[type].retried),
          ...family('background_queue_waiting', 'gauge', (_, queue) => queue.waiting + queue.prioritized),
          ...family('background_queue_active', 'gauge', (_, queue) => queue.active),
          ...family('background_dead_letters', 'gauge', (_, queue) => queue.failed)].join('\n') + '\n';
}

async function retryDead(type: string) {
  let retried = 0;
  for (const dead of await deadLetters.getJobs()) {
    if (dead.data.queue !== type) continue;
    await (await queues[type].getJob(dead.data.id))?.retry('failed');     // gone, if removeOnFail has removed it
    await dead.remove();
    retried++;
  }
  return { retried };
}
async function purgeDead(type: string) {
  const purged = await queues[type].clean(0, 10_000, 'failed');
  for (const dead of await deadLetters.getJobs()) if (dead.data.queue === type) await dead.remove();
  return { purged: purged.length };
}
const routes: Record<string, (body: any) => Promise<unknown>> = {
  'POST /jobs': async ({ type, payload, options }) => ({ id: (await queues[type].add(type, payload, options)).id }),
  'GET /health': health,
  'GET /metrics': metrics,
  'GET /dead-letters': async () => (await deadLetters.getJobs()).map((job) => job.data),
  'POST /dead-letters/retry': ({ type }) => retryDead(type),
  'POST /dead-letters/purge': ({ type }) => purgeDead(type),
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

await manager.start();
const server = createServer(serve).listen(Number(process.env.PORT ?? 8080), '127.0.0.1');
for (const signal of ['SIGTERM', 'SIGINT']) {
  process.once(signal, async () => {
    server.close();
    await manager.stop(20_000);
    process.exit(0);
  });
}
