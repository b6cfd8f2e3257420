// Arguments that fast-check makes from the schemas of openapi.json, valid and invalid: no status
// that is not documented, none of 500, 504 and 507, and each answer as its schema says.
import { basic, fc, load, ok, send, target } from './contract.mjs';

const { main, fuzzers, password, names, seed } = JSON.parse(process.env.JOBQ_CONTRACT);
const runs = Number(process.env.FUZZ_RUNS || 3000);
const contract = await load(main, basic(fuzzers[0], password));
// ids, tokens and names that answers had: the next requests use them
const seen = { uuid: new Set(names.jobs), text: new Set(names.texts), cursor: new Set(), token: new Set(['x']) };
const keep = 200;

// ---------- values ----------

const text = fc.oneof({ weight: 3, arbitrary: fc.nat(1000).map((n) => pick(seen.text, n)) },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 80 }) }, { weight: 1, arbitrary: fc.string({ unit: 'grapheme', maxLength: 300 }) },
  fc.constantFrom('', ' ', '%', "'; DROP TABLE jobq.queue; --", '{limit}', '\\', '-', 'NaN', 'null', '../..', '@daily', 'UTC'));
const uuid = fc.oneof({ weight: 3, arbitrary: fc.nat(1000).map((n) => pick(seen.uuid, n)) }, fc.uuid());
// short ones: claims and drains wait for them
const interval = fc.constantFrom('0', '1 ms', '-1 ms', '1 month', '30 days', '10000 years', '200000000 years', '-infinity', '', 'soon', 'P1D', '1e30 days');
const short = fc.constantFrom('0', '1 ms', '-1 ms', '', 'soon');
const time = fc.oneof(fc.date({ noInvalidDate: true }).map((d) => d.toISOString()), fc.constantFrom('infinity', '-infinity', 'now', '', 'yesterday',
  '294276-12-31T23:59:59Z', '294277-01-01', '4713-01-01 BC', '2026-02-30T00:00:00Z'));
const numbers = [0, 1, -1, 100, 101, 2147483647, 2147483648, -2147483649, 4294967296, '9223372036854775807', '9223372036854775808', '1e300', '1e400', 1.5];
const pick = (set, n) => { const all = [...set]; return all[n % all.length]; };

// JSON as text: it may have numbers that JavaScript has not.
function integer(schema) {
  const whole = schema.format === 'int64' ? fc.maxSafeInteger() : fc.integer();
  const inside = fc.integer({ min: schema.minimum ?? -1000, max: schema.maximum ?? 1000 });

  return fc.oneof({ weight: 4, arbitrary: inside }, whole, fc.constantFrom(...numbers)).map(String);
}
function value(name, schema) {
  const type = [schema.type].flat().find((x) => x !== 'null');

  if (name === 'wait' || name === 'timeout')
    return short.map((s) => JSON.stringify(s));
  if (name === 'token')
    return fc.nat(1000).map((n) => JSON.stringify(pick(seen.token, n)));
  if (name === 'cursor')
    return fc.oneof(fc.nat(1000).map((n) => pick(seen.cursor.size ? seen.cursor : seen.text, n)), text, uuid).map((s) => JSON.stringify(s));
  if (schema.enum)
    return fc.constantFrom(...schema.enum).map((x) => JSON.stringify(x));
  if (schema.$ref || !type)
    return fc.oneof(fc.json({ maxDepth: 3 }), fc.constantFrom('{}', '[]', 'null', '{"a":1e400}', '[1e-400]', '"\\ud83d\\ude00"'));
  if (type === 'array')
    return fc.array(value('', schema.items), { maxLength: 4 }).map((a) => `[${a.join(',')}]`);
  if (type === 'boolean')
    return fc.boolean().map(String);
  if (type === 'integer')
    return integer(schema);
  if (type === 'number')
    return fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }).map((x) => JSON.stringify(x)), integer(schema));
  return { uuid, 'date-time': time, interval }[schema.format]?.map((s) => JSON.stringify(s)) ?? text.map((s) => JSON.stringify(s));
}
// Anything, as text of JSON or something like it.
const wild = fc.oneof(fc.json({ maxDepth: 2 }), fc.constantFrom('NaN', 'Infinity', '-', '01', '1e', '"', '{"a"', '"\\u0000"', '"\\ud800"', '[[[', '[]]', 'nul',
  '9223372036854775808', '-1e999999', '"\t"'), fc.constant('['.repeat(10_000)), fc.constant('['.repeat(70) + ']'.repeat(70)), fc.constant('1'.repeat(100)));
// The text of a value in a path or query string.
const bare = (json) => { try { const x = JSON.parse(json); return typeof x === 'string' ? x : json; } catch { return json; } };

// ---------- requests ----------

function request(o) {
  const list = contract.arguments(o);
  const given = list.map((a) => fc.tuple(fc.oneof({ weight: 12, arbitrary: value(a.name, a.schema) }, { weight: 1, arbitrary: wild }),
    a.required ? fc.nat(20).map((n) => n > 0) : fc.boolean()).map(([json, there]) => ({ ...a, json, there: there || a.in === 'path' })));
  const unknown = fc.oneof({ weight: 12, arbitrary: fc.constant(null) }, fc.string({ maxLength: 10 }));

  return fc.record({ o: fc.constant(o), list: fc.tuple(...given), unknown, who: fc.constantFrom(...fuzzers) });
}

function built({ o, list, unknown, who }) {
  const of = (place) => list.filter((a) => a.there && a.in === place);
  const path = Object.fromEntries(of('path').map((a) => [a.name, bare(a.json).toWellFormed() || '-']));
  const query = Object.fromEntries(of('query').map((a) => [a.name, bare(a.json).toWellFormed()]));
  const members = of('body').map((a) => `${JSON.stringify(a.name)}: ${a.json}`);

  if (unknown !== null && o.requestBody)
    members.push(`${JSON.stringify(unknown)}: 1`);
  else if (unknown !== null)
    query[unknown.toWellFormed()] = '1';
  return { method: o.method, target: target(o.path, path, query), body: o.requestBody ? `{${members.join(', ')}}` : undefined,
    headers: { Authorization: basic(who, password) } };
}

// Remembers what other requests may use.
function learn(at, key = '') {
  if (typeof at === 'string') {
    const set = key === 'next' ? seen.cursor : key === 'token' ? seen.token : /^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(at) ? seen.uuid
      : ['name', 'job_type', 'task_key', 'tenant'].includes(key) ? seen.text : null;

    set?.add(at);
    if (set && set.size > keep)
      set.delete([...set][1 + Math.floor(set.size / 2)]);
  } else if (at !== null && typeof at === 'object') {
    for (const [k, v] of Object.entries(at).slice(0, 40))
      learn(v, Array.isArray(at) ? key : k);
  }
}

const counts = {};
async function check(made) {
  const sent = built(made);
  let answer;

  if (sent.target.length > 8000)
    return;
  do {
    answer = await send(main, sent);
  } while (answer.status === 429 && answer.text.includes('50 requests a second') && await new Promise((r) => setTimeout(() => r(true), 50)));
  counts[answer.status] = (counts[answer.status] ?? 0) + 1;
  let fault = contract.fault(made.o, answer);
  // the table of routes does not fit the functions
  if (fault === '' && ([500, 504, 507].includes(answer.status) || /"sqlstate":"(42883|42P01|3F000)"/.test(answer.text) && answer.status === 501))
    fault = answer.text;
  if (fault !== '')
    throw new Error(`${sent.method} ${sent.target.slice(0, 500)} ${(sent.body ?? '').slice(0, 1500)}\n${fault}`);
  if (answer.status === 200 && made.o.id !== 'get_openapi_json' && answer.headers['content-type'] === 'application/json')
    learn(JSON.parse(answer.text));
}

console.log(`# JOBQ_SEED=${seed} FUZZ_RUNS=${runs}`);
const result = await fc.check(fc.asyncProperty(fc.constantFrom(...contract.operations).chain(request), check),
  { seed: Number(seed), numRuns: runs, endOnFailure: true });
console.log(`# ${Object.entries(counts).map(([status, n]) => `${status}: ${n}`).join(', ')}`);
ok(!result.failed, `${runs} requests with arguments made from the schemas`, `JOBQ_SEED=${seed}: ${result.errorInstance?.message ?? ''}`.replaceAll('\n', '\n# '));
ok(result.failed || counts[200] > runs / 20, 'some of them are answered with 200', JSON.stringify(counts));
process.exit(0);
