// Uses all types of the Node client; node.pl checks this file with tsc.

import {
  Failure, Job, LeaseLost, Permanent, Retry, Skip, Snooze, Stopped, Worker, clientOptions, enqueue, enqueueMany,
  type BatchHandler, type Duration, type EnqueueOptions, type Handler, type LogEntry, type Outcome, type Queryable,
  type WorkerOptions,
} from 'jobq';

interface Image { width: number }

const options: WorkerOptions = {
  concurrency: 2, prefetch: 10, lease: 60, poll: 1, grace: 5, listenDsn: null, pooler: false, name: 'types', signals: ['SIGTERM'],
  log: (entry: LogEntry) => { const event: string = entry.event; void event; },
  around: async (job: Job, run: () => Promise<Outcome>) => { if (await run() === 'failed') void job.id; },
};
const one: Handler<Image, Image> = async (job) => {
  const signal: AbortSignal = job.signal;

  if (signal.aborted && signal.reason instanceof Stopped) throw new Skip(signal.reason.reason, { width: 0 });
  const trace: string | null = job.traceparent;
  await job.log(trace ?? 'no trace');
  await job.progress(50, { page: 1 });
  await job.checkpoint({ page: 2 }, 60);
  await job.log('half of it', { level: 'warning', type: 'log', data: { n: 1 } });
  return { width: job.payload.width / 2 };
};
const many: BatchHandler<Image, Image> = (jobs) => jobs.map((job) => job.payload.width > 0 ? job.payload : new Permanent('no width'));
const worker: Worker = new Worker('postgresql:///', options).handler('one', one, { concurrency: 2 }).handler('many', many, { batch: 100 })
  .handler('lengths', (jobs) => jobs.map((job) => job.payload.length), { batch: 10, concurrency: 2 })    // inferred
  .handler('length', (job) => job.payload.length, { concurrency: 2 });

const skip = new Skip('no need');
const reason: string | null = skip.reason;
const result: unknown = skip.result;
const snooze = new Snooze('1 hour', 'later');
const delay: Duration = snooze.delay;
const why: string | null = snooze.reason;
const failures: Failure[] = [new Retry('again', { retryAfter: 5, code: 'E', details: {} }), new Permanent('never')];
const retryable: true = new Retry('again').retryable;
const permanent: false = new Permanent('never').retryable;
const lost: 'cancel' | 'lost' | 'shutdown' = (null as unknown as LeaseLost).reason;

async function main(db: Queryable): Promise<string[]> {
  const given: EnqueueOptions = { priority: 1, delay: '1 hour', scheduledFor: new Date(), uniqueKey: 'k', onConflict: 'ignore', traceparent: '00' };
  const id: string = await enqueue<Image>(db, 'one', { width: 1 }, given);

  await worker.run();
  await worker.runUntilEmpty();
  worker.stop();
  return [id, ...await enqueueMany(db, 'many', [{ width: 1 }], { priority: 1 })];
}

new Worker((null as unknown as { url?: string }).url);     // of process.env

// @ts-expect-error: an option that does not exist
new Worker('postgresql:///', { concurency: 1 });

export { clientOptions, delay, failures, lost, main, permanent, reason, result, retryable, why };
