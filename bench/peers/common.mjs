// Common code of the peers: the command line, the protocol of `work`, and `enqueue`,
// load's stand-in (../README.md).
import { open } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import pg from 'pg';

export const KINDS = ['noop', 'row'];

export const now = () => (performance.timeOrigin + performance.now()) / 1000;

const fail = (message) => {
  console.error(message);
  process.exit(1);
};

const NUMBERS = ['jobs', 'first', 'connections', 'concurrency', 'bulk', 'rate', 'seconds', 'width', 'times', 'layers'];

function readOptions() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      kind: { type: 'string', default: 'noop' },
      config: { type: 'string', default: 'default' },
      times: { type: 'string' },
      cron: { type: 'string' },
      set: { type: 'string', default: '{}' },
      commit: { type: 'boolean', default: false },
      flow: { type: 'boolean', default: false },   // work: jobs wait for jobs
      shape: { type: 'string', default: 'fanout' },
      ...Object.fromEntries(NUMBERS.map((name) => [name, { type: 'string' }])),
    },
  });
  if (!KINDS.includes(values.kind)) fail(`--kind ${KINDS.join('|')}, not ${values.kind}`);
  for (const name of NUMBERS) {
    if (values[name] === undefined) continue;
    values[name] = Number(values[name]);
    if (!(values[name] >= 0)) fail(`--${name}: not a number`);
  }
  return { verb: positionals[0], options: values };
}

// `configs` maps a config's name to the peer's settings; --set changes
// some, to look for better ones:
//   work --config best --set '{"rows": 64}'
export async function main({ configs, setup, enqueue, flow, work }) {
  const { verb, options } = readOptions();
  const settings = { ...configs[options.config], ...JSON.parse(options.set) };
  if (!configs[options.config]) fail(`--config ${Object.keys(configs).join('|')}, not ${options.config}`);
  const verbs = {
    setup: () => setup(options, settings),
    enqueue: enqueue && (() => runEnqueue(options, (lane) => enqueue(options, settings, lane))),
    flow: flow && (async () => console.log(JSON.stringify({ jobs: await flow(options, settings) }))),
    work: () => runWork(options, (acknowledged) => work(options, settings, acknowledged)),
  };
  if (!verbs[verb]) fail(`the verb is one of ${Object.keys(verbs).filter((v) => verbs[v]).join(', ')}`);
  await verbs[verb]();
  process.exit(0);   // even if a library of the peer still holds handles open
}

// The jobs of a graph, each with the indexes of those before it that it waits for: 1 -> width -> 1,
// or layers of three parents each.
export function graph({ shape, width, layers }) {
  const indexes = (n, from) => Array.from({ length: n }, (_, i) => from + i);
  if (shape === 'fanout') return [[], ...indexes(width, 1).map(() => [0]), indexes(width, 1)];
  return indexes(width * layers, 0).map((i) => (i < width ? [] : [0, 1, 2].map((d) => (Math.floor(i / width) - 1) * width + (i + d) % width)));
}

export const newPool = (max, more = {}) => {
  const pool = new pg.Pool({ max, ...more });
  pool.on('error', () => {});   // an idle connection that dies is replaced
  pool.on('connect', (client) => client.on('error', () => {}));
  return pool;
};

// Opens all connections of a pool: connecting is not measured.
export async function warm(pool) {
  const clients = await Promise.all(Array.from({ length: pool.options.max }, () => pool.connect()));
  for (const client of clients) client.release();
}

// The handlers. `row` commits by itself: a statement outside a transaction, so no
// job undoes the row of another.
export async function newHandler(kind, concurrency) {
  if (kind === 'noop') return async () => {};
  const pool = newPool(concurrency);
  await warm(pool);
  return async (n) => {
    const ran = now();
    await pool.query({ name: 'row', text: 'INSERT INTO bench.result VALUES ($1, $2)', values: [n ?? 0, ran] });   // a cron job has no n
  };
}

function go() {
  console.log('ready');
  const lines = createInterface({ input: process.stdin });
  return new Promise((resolve) => {
    lines.once('line', () => resolve(true));
    lines.once('close', () => resolve(false));
  });
}

const cpuSeconds = (since) => {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1e6;
};

// `connect(acknowledged)` prepares and gives { start, stop }; the peer calls acknowledged(n) when
// the queue has confirmed that n more jobs are done.
async function runWork({ jobs }, connect) {
  let total = 0;
  let finished;
  let enough;
  const done = new Promise((resolve) => { enough = resolve; });
  process.once('SIGTERM', enough);
  const worker = await connect((n) => {
    if (jobs && total >= jobs) return;
    total += n;
    finished = now();
    if (jobs && total >= jobs) enough();
  });
  if (!await Promise.race([go(), done.then(() => false)])) return;   // end of stdin, or a SIGTERM
  const started = now();
  const cpu = process.cpuUsage();
  await worker.start();
  await done;
  const used = cpuSeconds(cpu);
  // Running jobs may end, and count, after a SIGTERM.
  await worker.stop();
  console.log(JSON.stringify({ jobs: total, started, finished: finished ?? now(), cpu: used }));
}

const payloads = (first, count) => Array.from({ length: count }, (_, i) => ({ n: first + i }));

const percentile = (sorted, p) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))] ?? 0;

// `connect(lane)` gives { send(payload, beforeCommit), sendBulk(payloads, beforeCommit),
// close }, a connection each.
async function runEnqueue(options, connect) {
  const { connections = 1, first = 0, bulk = 1, rate, seconds, commit, times } = options;
  const jobs = rate ? Math.floor(rate * (seconds ?? 1)) : options.jobs ?? 1;
  const lanes = await Promise.all(Array.from({ length: connections }, (_, lane) => connect(lane)));
  const calls = [];
  const begun = now();
  const cpu = process.cpuUsage();
  let next = 0;

  async function call(lane, n, count, due) {
    const before = now();
    let commitAt = before;
    const beforeCommit = commit ? () => { commitAt = now(); } : undefined;
    if (options.bulk) await lane.sendBulk(payloads(n, count), beforeCommit);
    else await lane.send({ n }, beforeCommit);
    // Node's timers count whole milliseconds and end early: then it is due when it is sent
    calls.push([n, Math.min(due ?? before, before), before, commitAt, now()]);
  }

  async function feed(lane) {
    while (next < jobs) {
      const k = next;
      next += bulk;
      const due = rate ? begun + k / rate : undefined;
      const wait = rate ? (due - now()) * 1000 : 0;
      if (wait > 0) await sleep(wait);
      await call(lane, first + k, Math.min(bulk, jobs - k), due);
    }
  }

  await Promise.all(lanes.map(feed));
  const elapsed = now() - begun;
  const used = cpuSeconds(cpu);
  await Promise.all(lanes.map((lane) => lane.close()));
  if (times) await writeTimes(times, calls);
  const took = calls.map(([, , before, , after]) => after - before).sort((a, b) => a - b);
  console.log(JSON.stringify({
    jobs, seconds: elapsed, cpu: used,
    calls: { p50: percentile(took, 0.5), p95: percentile(took, 0.95), p99: percentile(took, 0.99), max: took.at(-1) ?? 0 },
  }));
}

async function writeTimes(path, calls) {
  const file = await open(path, 'w');
  for (let i = 0; i < calls.length; i += 10000) {
    await file.write(calls.slice(i, i + 10000)
      .map(([n, ...at]) => `${n} ${at.map((t) => t.toFixed(6)).join(' ')}\n`).join(''));
  }
  await file.close();
}
