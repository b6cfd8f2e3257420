// PgQ (extension pgq; `default` also runs its ticker daemon, pgqd).  enqueue by SQL:
//   SELECT pgq.insert_event('q', 'noop', $1)
//   bulk: SELECT count(pgq.insert_event('q', 'noop', p)) FROM unnest($1::text[]) p
// One consumer: PgQ hands out whole batches, in order: the events between two ticks.  Every job of
// a batch is finished before the batch is.
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { main, newHandler, newPool } from './common.mjs';

const configs = {
  // pgqd and the queue as they come: a tick a second at most.  The
  // consumer looks once a second, too.
  default: { queue: {}, daemon: true, pause: 1000, rows: 1 },
  // An idle consumer ticks by itself; a tick closes a batch of any size.
  best: { queue: { ticker_max_lag: '0', ticker_max_count: '1' }, pause: 1, rows: 32 },
};

const CHUNK = 2000;   // events of a batch held in memory at once

async function setup(options, { queue }) {
  const pool = newPool(1);
  await pool.query('CREATE EXTENSION IF NOT EXISTS pgq');
  await pool.query("SELECT pgq.create_queue('q')");
  for (const [name, value] of Object.entries(queue)) {
    await pool.query("SELECT pgq.set_queue_config('q', $1, $2)", [name, value]);
  }
  await pool.query("SELECT pgq.register_consumer('q', 'c')");
  await pool.end();
}

async function startTicker() {
  const directory = await mkdtemp(join(tmpdir(), 'pgqd-'));
  const ini = join(directory, 'pgqd.ini');
  const { PGDATABASE = 'postgres' } = process.env;
  await writeFile(ini, `[pgqd]\ninitial_database = ${PGDATABASE}\ndatabase_list = ${PGDATABASE}\n`);
  const child = spawn('pgqd', ['-q', ini], { stdio: ['ignore', 'ignore', 'inherit'] });
  const ended = new Promise((resolve) => {
    child.once('exit', resolve);
    child.once('error', (error) => { console.error(`pgqd: ${error.message}`); process.exit(1); });
  });
  process.once('exit', () => child.kill());
  return async () => {
    child.kill();
    await ended;
    await rm(directory, { recursive: true });
  };
}

// Runs `handler` for the events, at most `limit` at a time.
async function runEvents(events, handler, limit) {
  let next = 0;
  const lane = async () => {
    while (next < events.length) await handler(JSON.parse(events[next++].ev_data).n);
  };
  await Promise.all(Array.from({ length: Math.min(limit, events.length) }, lane));
}

// A cursor, which needs a transaction; the next chunk is fetched while this one runs.
async function runBatch(client, batch, handler, limit) {
  let count = 0;
  await client.query('BEGIN');
  let chunk = (await client.query("SELECT ev_data FROM pgq.get_batch_cursor($1, 'b', $2)", [batch, CHUNK])).rows;
  while (chunk.length > 0) {
    count += chunk.length;
    const more = chunk.length === CHUNK ? client.query(`FETCH ${CHUNK} FROM b`) : { rows: [] };
    await runEvents(chunk, handler, limit);
    chunk = (await more).rows;
  }
  await client.query('COMMIT');
  return count;
}

async function work({ kind, concurrency }, settings, acknowledged) {
  const limit = concurrency ?? settings.rows;
  const handler = await newHandler(kind, limit);
  const client = await newPool(1).connect();
  const stopTicker = settings.daemon && await startTicker();
  let stopping = false;

  async function nextBatch() {
    if (!settings.daemon) await client.query({ name: 'tick', text: "SELECT pgq.ticker('q')" });
    const { rows } = await client.query({ name: 'next', text: "SELECT pgq.next_batch('q', 'c') AS batch" });
    return rows[0].batch;
  }

  async function consume() {
    while (!stopping) {
      const batch = await nextBatch();
      if (batch === null) {
        await sleep(settings.pause);
        continue;
      }
      const count = await runBatch(client, batch, handler, limit);
      await client.query({ name: 'finish', text: 'SELECT pgq.finish_batch($1)', values: [batch] });
      if (count > 0) acknowledged(count);
    }
  }

  let consuming;
  return {
    start: () => { consuming = consume(); },
    async stop() {
      stopping = true;
      await consuming;
      if (stopTicker) await stopTicker();
    },
  };
}

await main({ configs, setup, work });
