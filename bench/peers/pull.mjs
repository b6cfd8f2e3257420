// The Node client of jobq (clients/node) as a peer of the others.  enqueue by SQL:
//   SELECT jobq.enqueue('noop', $1::jsonb)
import { Worker } from 'jobq';
import pg from 'pg';
import { main, newHandler } from './common.mjs';

const configs = {
  // One handler at a time for each claimed job.
  default: { concurrency: 10, prefetch: 200, batch: 1, rows: 10 },
  // A handler gets 100 jobs.
  batch: { concurrency: 4, prefetch: 600, batch: 100, rows: 10 },
};

// The client reports a job before its completion has committed, so the statements
// that complete jobs are watched.
function watchCompletions(acknowledged) {
  const query = pg.Client.prototype.query;
  pg.Client.prototype.query = function watched(statement, ...rest) {
    const result = query.call(this, statement, ...rest);
    if (statement?.name?.startsWith('jobq_complete')) result.then(({ rowCount }) => acknowledged(rowCount), () => {});
    return result;
  };
}

async function work({ kind, concurrency }, { batch, rows, ...settings }, acknowledged) {
  const handler = await newHandler(kind, concurrency ?? rows);
  const worker = new Worker(`postgresql:///${process.env.PGDATABASE}`,
    { ...settings, ...concurrency && { concurrency }, log: () => {}, signals: [] });
  const one = ({ payload }) => handler(payload.n);
  watchCompletions(acknowledged);
  worker.handler(kind, batch > 1 ? (jobs) => Promise.all(jobs.map(one)) : one, { batch });
  let running;
  return {
    start() { running = worker.run(); },
    stop() {
      worker.stop();
      return running;
    },
  };
}

await main({ configs, work });
