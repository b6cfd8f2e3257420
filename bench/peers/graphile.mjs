// graphile-worker.  enqueue by SQL:
//   SELECT graphile_worker.add_job('noop', $1::json)
//   bulk: SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(SELECT json_populate_record(
//           NULL::graphile_worker.job_spec,
//           json_build_object('identifier', 'noop', 'payload', p::json))
//           FROM unnest($1::text[]) p))
import { Logger, parseCronItems, run, runMigrations, WorkerPreset } from 'graphile-worker';
import pg from 'pg';
import { main, newHandler, newPool, warm } from './common.mjs';

const configs = {
  default: { concurrentJobs: 1, maxPoolSize: 10, rows: 10 },
  // Its performance page, with more jobs at once and at hand (24 and 500 there), which is faster
  // for noop and no different for row; a longer batch delay only adds latency.
  best: {
    concurrentJobs: 100,
    maxPoolSize: 25,
    localQueue: { size: 1000 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    rows: 32,   // connections of the row handlers
  },
};

const logger = new Logger(() => () => {});   // the default writes a line per job

// No event reports the commit of a completion, so the statements that complete jobs are watched.
function watchedClient(acknowledged) {
  return class extends pg.Client {
    query(query, ...rest) {
      const result = super.query(query, ...rest);
      if (query?.name?.startsWith('complete_job')) {
        result.then(({ rowCount }) => acknowledged(rowCount), () => {});
      }
      return result;
    }
  };
}

const setup = () => runMigrations({ pgPool: newPool(2), preset: { extends: [WorkerPreset], worker: { logger } } });

async function work({ kind, concurrency, cron }, { rows, ...settings }, acknowledged) {
  const worker = { ...settings, logger };
  if (concurrency) {
    worker.concurrentJobs = concurrency;
    worker.maxPoolSize = Math.max(settings.maxPoolSize, concurrency + 2);
  }
  const handler = await newHandler(kind, Math.min(worker.concurrentJobs, rows));
  const pgPool = newPool(worker.maxPoolSize, { Client: watchedClient(acknowledged) });
  await warm(pgPool);
  let runner;
  return {
    async start() {
      runner = await run({
        pgPool,
        preset: { extends: [WorkerPreset], worker },
        taskList: { [kind]: ({ n }) => handler(n) },
        parsedCronItems: cron ? parseCronItems([{ task: kind, match: cron }]) : [],
        noHandleSignals: true,
      });
    },
    stop: () => runner.stop(),
  };
}

await main({ configs, setup, work });
