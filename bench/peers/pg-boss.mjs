// pg-boss.  enqueue by SQL, documented ("the only required column is name"):
//   INSERT INTO pgboss.job (name, data) VALUES ('noop', $1::jsonb)
//   bulk: INSERT INTO pgboss.job (name, data) SELECT 'noop', p::jsonb FROM unnest($1::text[]) p
// `best` looks again only after 30 s unless it is notified, as send() and insert() do:
//   WITH job AS (INSERT ...)
//   SELECT pg_notify('pgboss_' || left(encode(sha224('pgboss'), 'hex'), 24), 'noop')
// `flow` adds a graph by boss.flow().  Its resolver polls each five seconds (at least one); with
// --flow it is called whenever jobs have completed (resolveFlow(), documented), which is faster.
// `default` runs a job every two seconds: the default of work().
import { PgBoss } from 'pg-boss';
import { KINDS, graph, main, newHandler, newPool } from './common.mjs';

const configs = {
  default: { queue: {}, boss: {}, work: {}, rows: 10 },
  // Two to four workers and batches of 500 to 2,000 are alike, one worker is slower; so are 10 or
  // 64 connections for the rows.
  best: {
    queue: { notify: true },
    boss: { useListenNotify: true },
    work: { batchSize: 500, localConcurrency: 2, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 },
    rows: 32,
  },
};

async function startBoss(options) {
  // libpq's environment names the server; pg-boss requires a value.
  const boss = new PgBoss({ database: process.env.PGDATABASE, ...options });
  boss.on('error', (error) => console.error(error.message));
  await boss.start();
  return boss;
}

async function setup(options, { queue }) {
  const boss = await startBoss({ supervise: false, schedule: false });
  for (const kind of KINDS) await boss.createQueue(kind, queue);
  await boss.stop({ graceful: false });
}

// No event reports the commit of a completion, so the statements that complete jobs are watched.
function watchCompletions(boss, acknowledged) {
  const db = boss.getDb();
  const execute = db.executeSql.bind(db);
  db.executeSql = async (text, values) => {
    const result = await execute(text, values);
    if (/SET completed_on = .*\s+state = 'completed'/.test(text)) acknowledged(Number(result.rows[0].count));
    return result;
  };
}

function newWorker(kind, settings, handler) {
  if (kind === 'noop') return { options: settings, run: async () => {} };
  // A batch is settled job by job, or one row's failure would fail the others.
  const run = async (job) => {
    try {
      await handler(job.data.n);
      return { id: job.id, status: 'completed' };
    } catch (error) {
      return { id: job.id, status: 'failed', output: { message: error.message } };
    }
  };
  return { options: { ...settings, perJobResults: true }, run: (jobs) => Promise.all(jobs.map(run)) };
}

async function flow({ kind, times = 1, ...shape }) {
  const boss = await startBoss({ supervise: false, schedule: false });
  const jobs = graph(shape).map((parents, i) => ({ ref: `j${i}`, name: kind, data: { n: i }, dependsOn: parents.map((p) => `j${p}`) }));
  for (let i = 0; i < times; i++) await boss.flow(jobs);
  await boss.stop({ graceful: false });
  return times * jobs.length;
}

// Resolves flows, one pass at a time, and wakes the worker for the jobs that are free now.
function newResolver(boss, wake) {
  let wanted = false;
  let running = false;
  return async () => {
    wanted = true;
    if (running) return;
    running = true;
    while (wanted) {
      wanted = false;
      await boss.resolveFlow().catch((error) => console.error(error.message));
      wake();
    }
    running = false;
  };
}

async function work({ kind, concurrency, cron, flow: flows }, settings, acknowledged) {
  const options = { ...settings.work, ...concurrency && { localConcurrency: concurrency } };
  const handler = await newHandler(kind, settings.rows);
  const boss = await startBoss({ ...settings.boss, max: Math.max(10, 2 * (options.localConcurrency ?? 1)) });
  let id;
  const resolve = flows ? newResolver(boss, () => boss.notifyWorker(id)) : () => {};
  watchCompletions(boss, (n) => { acknowledged(n); resolve(); });
  const worker = newWorker(kind, options, handler);
  return {
    async start() {
      id = await boss.work(kind, worker.options, worker.run);
      if (cron) await boss.schedule(kind, cron, {});
    },
    stop: () => boss.stop({ timeout: 10000 }),
  };
}

async function enqueue({ kind }, settings) {
  const boss = await startBoss({ supervise: false, schedule: false, max: 1 });
  const client = await newPool(1).connect();
  const db = { executeSql: (text, values) => client.query(text, values) };
  await boss.getQueue(kind);

  async function call(add, beforeCommit) {
    if (!beforeCommit) return add({});
    await client.query('BEGIN');
    await add({ db });
    beforeCommit();
    return client.query('COMMIT');
  }

  return {
    send: (data, beforeCommit) => call((more) => boss.send(kind, data, more), beforeCommit),
    sendBulk: (list, beforeCommit) => call((more) => boss.insert(kind, list.map((data) => ({ data })), more), beforeCommit),
    close: () => boss.stop({ graceful: false }),
  };
}

await main({ configs, setup, enqueue, flow, work });
