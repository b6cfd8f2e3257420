// BullMQ: on Redis (REDIS_URL, or REDIS_SOCKET, a path), and config `postgres` on its PostgreSQL
// backend.  No SQL interface: jobs come from `enqueue`.
import { createPostgresBackend, FlowProducer, Queue, Worker } from 'bullmq';
import { KINDS, main, newHandler } from './common.mjs';

// 50 to 300 at once are alike, removing completed jobs brings nothing.  More connections
// for rows than 20 are slower.
const best = { concurrency: 100, rows: 20 };

const configs = {
  default: { concurrency: 1 },
  best,
  always: best,   // for a Redis with appendfsync always
  postgres: { concurrency: 50, rows: 20, backend: createPostgresBackend },   // 20 or 100 at once are slower
};

function connection({ backend, concurrency }) {
  if (backend) return { max: Math.min(concurrency, 20) };
  const { REDIS_SOCKET: path, REDIS_URL: url = 'redis://127.0.0.1:6379' } = process.env;
  if (path) return { path, maxRetriesPerRequest: null };
  const { hostname: host, port } = new URL(url);
  return { host, port: Number(port || 6379), maxRetriesPerRequest: null };
}

const report = (error) => console.error(error.message);

async function openQueue(kind, settings, more) {
  const queue = new Queue(kind, { connection: { ...connection(settings), ...more } }, settings.backend);
  queue.on('error', report);
  await queue.waitUntilReady();
  return queue;
}

async function setup(options, settings) {
  for (const kind of KINDS) {
    const queue = await openQueue(kind, settings, settings.backend && { migrate: true });
    await queue.obliterate({ force: true });
    await queue.close();
  }
}

// A flow is a tree whose root waits for all others: `width` jobs and the one that waits for them.
async function flow({ kind, shape, width, times = 1 }, settings) {
  if (shape !== 'fanout') throw new Error('--shape: a flow of BullMQ is a tree');
  const producer = new FlowProducer({ connection: connection(settings) }, settings.backend);
  producer.on('error', report);
  const job = (n, more) => ({ name: kind, queueName: kind, data: { n }, ...more });
  const children = Array.from({ length: width }, (_, i) => job(i));
  for (let i = 0; i < times; i++) await producer.add(job(width, { children }));
  await producer.close();
  return times * (width + 1);
}

async function work({ kind, concurrency }, settings, acknowledged) {
  const used = { ...settings, concurrency: concurrency ?? settings.concurrency };
  const handler = await newHandler(kind, settings.rows ?? used.concurrency);
  const worker = new Worker(kind, (job) => handler(job.data.n),
    { connection: connection(used), concurrency: used.concurrency, autorun: false }, settings.backend);
  worker.on('error', report);
  worker.on('completed', () => acknowledged(1));   // emitted after the move to completed was answered
  await worker.waitUntilReady();
  return {
    start: () => { worker.run().catch(report); },
    stop: () => worker.close(),
  };
}

async function enqueue({ kind, commit }, settings) {
  if (commit) throw new Error('--commit: BullMQ adds jobs outside any transaction');
  const queue = await openQueue(kind, { ...settings, concurrency: 1 });
  return {
    send: (data) => queue.add(kind, data),
    sendBulk: (list) => queue.addBulk(list.map((data) => ({ name: kind, data }))),
    close: () => queue.close(),
  };
}

await main({ configs, setup, enqueue, flow, work });
