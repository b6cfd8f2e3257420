// Produces every status that openapi.json documents, of every operation, and validates each answer.
import net from 'node:net';
import { basic, load, ok, send, target } from './contract.mjs';
import { cases, empty } from './cases.mjs';
import { fakePostgres } from './fake_postgres.mjs';

// main serves the database; proxied does so for users of a proxy; refused has a fake server before
// it; crowded is for the limit of connections.
const { main, proxied, refused, crowded, fake, user, password, second } = JSON.parse(process.env.JOBQ_CONTRACT);
const authorization = basic(user, password);
const contract = await load(main, authorization);
const open = (o) => o.security?.length === 0;
const long = 'x'.repeat(9000);
await fakePostgres(fake);

// ---------- the requests ----------

// A request with all arguments that must be there, of names that nothing has.
const wanted = { post_admin_resources_update_rule: { base_priority: 1 } };
function plain(o, more = {}) {
  const needed = contract.arguments(o).filter((a) => a.required);
  const values = (place) => Object.fromEntries(needed.filter((a) => a.in === place).map((a) => [a.name, sample(a)]));
  const body = o.requestBody ? { ...values('body'), ...wanted[o.id], ...more.body } : undefined;

  return { method: o.method, target: target(o.path, values('path'), { ...values('query'), ...more.query }), body };
}
function sample({ name, schema }) {
  if (schema.enum)
    return schema.enum[0];
  if (name === 'filter')
    return { job_type: 'none' };
  if (schema.format === 'uuid')
    return '00000000-0000-7000-8000-000000000000';
  return { boolean: true, integer: 1, number: 1, array: [] }[schema.type] ?? (schema.$ref ? [] : 'none');
}
function as(o, who) {
  const signsIn = o.path.endsWith('/session') && o.method === 'POST';

  return signsIn ? { body: { user: who[0], password: who[1] } } : open(o) ? {} : { headers: { Authorization: basic(...who) } };
}
// Sends the operation's plain request with changes.
function ask(port, o, who, change = {}) {
  const sign = who ? as(o, who) : {};
  const request = plain(o, { body: sign.body, ...change });

  return send(port, { ...request, ...change.request, headers: { ...sign.headers, ...change.headers } });
}
const signed = (o, change) => ask(main, o, [user, password], change);
// The answer when PostgreSQL refuses the statement with this SQLSTATE.
const sqlstate = (state) => (o) => ask(refused, o, [state, 'x']);

const ways = {
  400: (o) => signed(o, { query: { nothing: '1' } }),
  401: (o) => (o.method === 'POST' && open(o) ? ask(main, o, ['nobody', 'x']) : ask(main, o, null)),
  403: (o) => (o.method === 'POST' && open(o) ? ask(main, o, [user, password], { headers: { Origin: 'http://evil.example' } })
    : ask(proxied, o, null, { headers: { 'X-User': 'mallory' } })),
  404: (o) => (o.responses[500] ? sqlstate('42704')(o) : signed(o)),
  409: sqlstate('55006'),
  413: (o) => signed(o, { headers: { 'Content-Length': '3000000' }, request: { body: undefined } }),
  414: (o) => signed(o, { query: { [long]: '1' } }),
  415: (o) => signed(o, { headers: { 'Content-Type': 'text/plain' }, request: { body: '{}' } }),
  417: (o) => signed(o, { headers: { Expect: 'x' } }),
  429: (o) => ask(proxied, o, [user, password], { headers: { 'X-Forwarded-For': '192.0.2.9' } }),
  431: (o) => signed(o, { headers: { X: Array(101).fill('1') } }),
  500: sqlstate('XX000'),
  501: sqlstate('0A000'),
  503: (o) => (o.responses[500] ? sqlstate('55000')(o) : ask(crowded, o, null)),
  504: sqlstate('57014'),
  505: (o) => signed(o, { request: { version: '1.2' } }),
  507: sqlstate('53100'),
};

// 50 requests a second are free for a role.
async function patient(f) {
  for (;;) {
    const answer = await f();

    if (!(answer.status === 429 && answer.text.includes('50 requests a second')))
      return answer;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

// ---------- 200 ----------

const produced = new Set();
const byId = new Map(contract.operations.map((o) => [o.id, o]));
function note(o, answer, expected, what) {
  const fault = answer.status === expected ? contract.fault(o, answer) : `${answer.status} ${answer.text.slice(0, 300)}`;

  if (fault === '')
    produced.add(`${o.id} ${answer.status}`);
  return ok(fault === '', `${o.method} ${o.path}: ${what ?? expected}`, fault);
}

const t = { user, password };
for (const [id, make] of cases) {
  const o = byId.get(id);

  if (!o) {
    ok(false, `${id} is an operation`, 'openapi.json has no such operationId');
    continue;
  }
  const { path, query, body, headers, anonymous, after, until } = make(t);
  const end = Date.now() + 60_000;
  let answer, items;
  do {
    answer = await patient(() => send(main, {
      method: o.method, target: target(o.path, path, query), body,
      headers: { ...(anonymous ? {} : { Authorization: authorization }), ...headers },
    }));
    items = answer.status === 200 && answer.headers['content-type'] === 'application/json' ? JSON.parse(answer.text) : null;
  } while (until && !(items && until(items)) && Date.now() < end);
  note(o, answer, 200);
  if (items && after)
    after(items);
  if (items?.items && !empty.has(id))
    ok(items.items.length > 0, `${o.method} ${o.path} has items`, answer.text);
}
const covered = new Set(cases.map(([id]) => id));
ok(contract.operations.every((o) => covered.has(o.id)), 'each operation has a case',
  contract.operations.filter((o) => !covered.has(o.id)).map((o) => o.id).join(' '));

// ---------- all others ----------

// Claims of one address that wait: as many as it may have requests.
const claim = { method: 'POST', target: '/api/v1/claim', body: { job_types: ['never'], wait: '20 s' } };
const waiting = [];
async function occupy() {
  // few sign-ins may wait at once
  for (const who of [basic(...second), authorization])
    await send(proxied, { method: 'GET', target: '/api/v1/session', headers: { Authorization: who } });
  for (let i = 0; i < 64; i++) {
    const who = i % 2 ? basic(...second) : authorization;
    waiting.push(send(proxied, { ...claim, headers: { Authorization: who, 'X-Forwarded-For': '192.0.2.9' } }).catch(() => {}));
  }
  const probe = () => send(proxied, { method: 'GET', target: '/livez', headers: { 'X-Forwarded-For': '192.0.2.9' } });
  const end = Date.now() + 10_000;
  while ((await probe()).status !== 429 && Date.now() < end);
}
const sockets = [];
async function crowd() {
  for (let i = 0; i < 64; i++) {
    await new Promise((resolve, reject) => {
      const socket = net.connect(crowded, '127.0.0.1', () => resolve(sockets.push(socket)));
      socket.on('error', reject);
    });
  }
}

for (const status of [...new Set(contract.operations.flatMap((o) => Object.keys(o.responses)))].map(Number)) {
  if (status === 200)
    continue;
  if (!ways[status]) {
    ok(false, `there is a way to ${status}`, 'statuses.mjs has none');
    continue;
  }
  if (status === 429)
    await occupy();
  if (status === 503)
    await crowd();
  for (const o of contract.operations.filter((x) => x.responses[status])) {
    const answer = await patient(() => ways[status](o)).catch((e) => ({ status: 0, text: e.message, headers: {} }));

    note(o, answer, status);
  }
}
sockets.forEach((s) => s.destroy());

// A health that is not good is an answer, not a problem.
const health = byId.get('get_health');
ok(contract.fault(health, { status: 503, headers: { 'content-type': 'application/json' },
  text: (await signed(health)).text }) === '', 'GET /health: 503 may have the health', 'it may not');
const missing = contract.operations.flatMap((o) => Object.keys(o.responses).map((s) => `${o.id} ${s}`)).filter((s) => !produced.has(s));
ok(missing.length === 0, 'every documented status of every operation was produced', missing.join(', '));
process.exit(0);
