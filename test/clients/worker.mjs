// The test worker of the Node client.

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { Permanent, Retry, Skip, Snooze, Worker, clientOptions, enqueue, enqueueMany } from '../../clients/node/index.mjs';

const env = process.env;
const seconds = (name, value) => (env[name] ? Number(env[name]) : value);
const log = (entry) => process.stderr.write(`${JSON.stringify({ ts: new Date().toISOString(), level: 'info', ...entry })}\n`);

async function connected(run) {
  const client = new pg.Client(clientOptions(env.JOBQ_DSN));

  client.on('error', () => {});
  await client.connect();
  try {
    return await run(client);
  } finally {
    await client.end();
  }
}

const gate = (name) => join(env.JOBQ_DIR, name);

async function passed(name) {
  while (!existsSync(gate(name))) await sleep(20);
}

const handlers = {
  echo: (job) => job.payload,

  async slow(job) {
    try {
      while (!existsSync(join(env.JOBQ_DIR, job.payload.gate))) await sleep(20, undefined, { signal: job.signal });
    } catch (error) {
      log({ event: 'handler_stopped', job_id: job.id, reason: job.signal.reason.reason });
      throw error;
    }
    return { gate: job.payload.gate };
  },

  fail(job) {
    throw new Permanent('no such thing', { code: 'E_FAIL', details: { payload: job.payload } });
  },

  flaky(job) {
    if (job.attempts === 1) {
      throw new Retry('not yet', { code: 'E_FLAKY', retryAfter: job.payload.retry_after });
    }
    return { attempts: job.attempts };
  },

  raise() {
    throw new Error('boom');
  },

  effect: (job) => connected(async (client) => {
    await client.query('BEGIN');
    await client.query('INSERT INTO public.effects (job, token) VALUES ($1, $2)', [job.id, job.leaseToken]);
    await job.complete(client, { effect: true });
    await client.query('COMMIT');
  }),

  async checkpoint(job) {
    if (job.progressData !== null) return { resumed: job.progressData };
    await job.checkpoint({ step: 1 }, 50);
    throw new Retry('again', { retryAfter: 0 });
  },

  batch: (jobs) => jobs.map((job) => ({ n: job.payload.n, of: jobs.length })),

  single: (jobs) => jobs.map((job) => ({ n: job.payload.n, of: jobs.length })),

  poison() {
    process.kill(process.pid, 'SIGKILL');
  },

  skip() {
    throw new Skip('not needed', { skipped: true });
  },

  snooze(job) {
    throw new Snooze(job.payload.delay, 'later');
  },

  async progress(job) {
    await job.progress(30);
    await passed(job.payload.gate);
  },

  async log(job) {
    await job.log("it's here");
    await job.log('half way', { level: 'warning', data: { n: [1] } });
  },

  async mixed(jobs) {
    if (jobs[0].payload.gate) await passed(jobs[0].payload.gate);
    return jobs.map((job) => (job.payload.n === 2 ? new Permanent('bad element') : job.payload));
  },

  async malformed(job) {
    await job.progress(50, { step: 1 });
    throw new Retry('boom', { code: 'x'.repeat(300), details: { no: '\ud800' }, retryAfter: '1 huor' });
  },

  badskip() {
    throw new Skip('not needed', { no: '\0' });
  },

  badsnooze() {
    throw new Snooze('1 huor');
  },

  badcode() {
    throw new Permanent('gone', { code: 404 });
  },

  longcode() {
    throw new Permanent('gone', { code: 'x'.repeat(300) });
  },

  async big(job) {
    if (job.progressData !== null) return { length: job.progressData.data.length, metadata: job.metadata.k.length };
    await job.checkpoint({ data: 'y'.repeat(200_000) });
    throw new Retry('resume', { retryAfter: 0 });
  },

  async note(job) {
    await passed(job.payload.gate);
    await job.log('a note');
  },

  refused(job) {
    const circular = {};
    circular.circular = circular;
    throw job.payload.end === 'skip' ? new Skip('no need', circular) : new Snooze('no interval');
  },

  broken: (job) => connected(async (client) => {
    await client.query('BEGIN');
    await client.query('SELECT 1 / 0').catch(() => {});
    await job.complete(client).catch(() => {});
    await client.query('ROLLBACK');
    await passed(job.payload.gate);
    return { after: true };
  }),

  // Completes in a transaction that is rolled back, or kept; then it returns.
  swallow: (job) => connected(async (client) => {
    await client.query('BEGIN');
    await client.query('INSERT INTO public.effects (job, token) VALUES ($1, $2)', [job.id, job.leaseToken]);
    await job.complete(client, { own: true });
    if (job.payload.how === 'late') await passed(job.payload.gate);
    if (job.payload.how === 'reported before') await job.progress(60);
    await client.query(job.payload.how === 'rolled back' ? 'ROLLBACK' : 'COMMIT');
    if (job.payload.how === 'reported') await job.progress(100);
    return { swallowed: true };
  }),

  together: (jobs) => connected(async (client) => {
    await passed(jobs[0].payload.gate);
    await client.query('BEGIN');
    for (const job of jobs) {
      await client.query('INSERT INTO public.effects (job, token) VALUES ($1, $2)', [job.id, job.leaseToken]);
      await job.complete(client);
    }
    await client.query('COMMIT');
  }),

  async report(job) {
    await passed(job.payload.gate);
    writeFileSync(gate(`${job.payload.gate}.reported`), '');
    await job.progress(50, { step: 1 });
    await job.log('reported');
    await passed(`${job.payload.gate}.end`);
  },

  async chat(job) {
    for (let after = 0; after < 5; after += job.signal.aborted) {
      job.progress(30);
      job.checkpoint({ n: 1 });
      await sleep(20);
    }
    throw job.signal.reason;
  },

  async rude(job) {
    while (!job.signal.aborted) await sleep(20);
    if (job.payload.end === 'checkpoint') await job.checkpoint({ step: 1 });
    if (job.payload.end === 'skip') throw new Skip('not needed');
    if (job.payload.end === 'snooze') throw new Snooze(3600);
    throw new Error('stopped');
  },

  deaf: () => new Promise((resolve) => setTimeout(resolve, 100_000)),
};

handlers.other = handlers.mixed;
const batches = { batch: 10, single: 1, mixed: 5, other: 5, together: 5 };

async function around(job, run) {
  if (job.payload?.hook === 'raise') throw job.attempts === 1 ? new Error('no span') : 'no span';
  log({ event: 'span_start', job_id: job.id, traceparent: job.traceparent });
  const outcome = await run();
  if (job.payload?.hook === 'raise at the end') throw new Error('no end of the span');
  log({ event: 'span_end', job_id: job.id, outcome });
}

if (process.argv[2] === 'enqueue') {
  const [type, payload, options] = process.argv.slice(3);
  const text = payload === '-' ? readFileSync(0, 'utf8') : payload;

  console.log(await connected((client) => enqueue(client, type, JSON.parse(text), JSON.parse(options ?? '{}'))));
} else if (process.argv[2] === 'enqueue_many') {
  const [type, payloads, options] = process.argv.slice(3);
  const ids = await connected((client) => enqueueMany(client, type, JSON.parse(payloads), JSON.parse(options ?? '{}')));

  console.log(ids.join('\n'));
} else {
  const worker = new Worker(env.JOBQ_DSN, {
    listenDsn: env.JOBQ_LISTEN_DSN || undefined,
    pooler: env.JOBQ_POOLER === '1',
    concurrency: seconds('JOBQ_CONCURRENCY', 1),
    prefetch: seconds('JOBQ_PREFETCH', 0),
    lease: seconds('JOBQ_LEASE', 120),
    poll: seconds('JOBQ_POLL', 1),
    grace: seconds('JOBQ_GRACE', 30),
    name: env.JOBQ_WORKER,
    around,
  });

  for (const type of env.JOBQ_TYPES.split(',')) {
    worker.handler(type, handlers[type], { batch: batches[type], concurrency: type === 'slow' ? seconds('JOBQ_SLOW') : undefined });
  }
  if (env.JOBQ_UNTIL_EMPTY) {
    for (let n = 0; n < Number(env.JOBQ_UNTIL_EMPTY); n++) await worker.runUntilEmpty();
  } else {
    await worker.run();
  }
  process.exit();
}
