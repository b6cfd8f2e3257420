// Requests to jobq-web over plain sockets, and the check of each answer by openapi.json.
import net from 'node:net';
import { createRequire } from 'node:module';

// The packages are where test/deps has put them.
const require = createRequire(process.env.JOBQ_NODE_WEB + '/');
const Ajv = require('ajv/dist/2020.js').default;
const addFormats = require('ajv-formats').default;
export const fc = require('fast-check');

export const basic = (user, password = 'x') => 'Basic ' + Buffer.from(`${user}:${password}`).toString('base64');

let number = 0;
export let failed = 0;
export function ok(good, what, why) {
  console.log(`${good ? 'ok' : 'not ok'} ${++number} - ${what}`);
  if (!good) {
    failed++;
    console.log(`# ${why}`);
  }
}

// The bytes of a request; headers that are undefined are left out.
function bytes({ method, target, version = '1.1', headers = {}, body }) {
  const all = { Host: 'jobq', Connection: 'close', ...(body === undefined ? {} : { 'Content-Type': 'application/json' }), ...headers };
  const content = body === undefined ? '' : Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));

  if (content.length > 0)
    all['Content-Length'] ??= content.length;
  const head = Object.entries(all).flatMap(([name, values]) => [values].flat().filter((v) => v !== undefined).map((v) => `${name}: ${v}\r\n`));
  return Buffer.concat([Buffer.from(`${method} ${target} HTTP/${version}\r\n${head.join('')}\r\n`, 'utf8'), Buffer.from(content)]);
}

function parse(data) {
  const end = data.indexOf('\r\n\r\n');
  const [line, ...lines] = data.subarray(0, end).toString('latin1').split('\r\n');
  const headers = Object.fromEntries(lines.map((l) => [l.slice(0, l.indexOf(':')).toLowerCase(), l.slice(l.indexOf(':') + 1).trim()]));

  return { status: Number(line.split(' ')[1]), headers, text: data.subarray(end + 4).toString('utf8') };
}

// Sends a request; the answer ends with the connection.
export function send(port, request) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, '127.0.0.1');
    const parts = [];
    let error = null;

    socket.setTimeout(30_000, () => socket.destroy(new Error(`no answer to ${request.method} ${request.target}`)));
    socket.on('connect', () => socket.write(bytes(request)));
    socket.on('data', (part) => {
      parts.push(part);
      // a stream does not end
      if (/\r\ncontent-type: text\/event-stream/i.test(parts[0]))
        socket.destroy();
    });
    socket.on('error', (e) => { error = e; });
    socket.on('close', () => {
      const data = Buffer.concat(parts);
      // a connection that is closed before all was read is reset, with an answer all the same
      if (data.includes('\r\n\r\n'))
        resolve(parse(data));
      else
        reject(error ?? new Error(`an empty answer to ${request.method} ${request.target}`));
    });
  });
}

// Objects of the document with known members have no others.
function closed(schema) {
  if (Array.isArray(schema))
    return schema.map(closed);
  if (schema === null || typeof schema !== 'object')
    return schema;
  const copy = Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, closed(value)]));
  if (copy.type === 'object' && copy.properties && copy.additionalProperties === undefined)
    copy.additionalProperties = false;
  return copy;
}

export class Contract {
  constructor(document) {
    const ajv = new Ajv({ strict: true, strictRequired: false, strictTypes: false, allErrors: false });

    addFormats(ajv);
    ajv.addFormat('interval', true);
    // as the description of the document says: years beyond 9999 have more digits
    ajv.addFormat('date-time', /^\d{4,6}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)( BC)?$|^-?infinity$/);
    this.document = document;
    this.operations = Object.entries(document.paths).flatMap(([path, operations]) => Object.entries(operations).map(([method, o]) =>
      ({ id: o.operationId, method: method.toUpperCase(), path, ...o })));
    const known = (schema) => JSON.parse(JSON.stringify(closed(schema)).replaceAll('"#/components/schemas/', '"urn:jobq:api#/$defs/'));
    ajv.addSchema({ $id: 'urn:jobq:api', $defs: known(document.components.schemas) });
    this.compiled = new Map();
    this.compile = (schema) => {
      const key = JSON.stringify(schema);

      if (!this.compiled.has(key))
        this.compiled.set(key, ajv.compile(known(schema)));
      return this.compiled.get(key);
    };
  }

  resolve(object) {
    return object.$ref ? object.$ref.slice(2).split('/').reduce((at, key) => at[key], this.document) : object;
  }

  response(operation, status) {
    const found = operation.responses[status];

    return found && this.resolve(found);
  }

  // What is wrong with an answer, '' if nothing is.
  fault(operation, answer) {
    const response = this.response(operation, answer.status);

    if (!response)
      return `status ${answer.status} is not documented: ${answer.text.slice(0, 300)}`;
    const type = (answer.headers['content-type'] ?? '').split(';')[0];
    const media = response.content[type];
    if (!media)
      return `${answer.status}: the type "${type}" is not documented`;
    for (const name of Object.keys(response.headers ?? {})) {
      const spared = name === 'Retry-After' ? type === 'application/json' : name === 'WWW-Authenticate' && answer.scripted;
      if (answer.headers[name.toLowerCase()] === undefined && !spared)
        return `${answer.status}: no header ${name}`;
    }
    if (!type.endsWith('json'))
      return '';
    let body;
    try {
      body = JSON.parse(answer.text);
    } catch (e) {
      return `${answer.status}: ${e.message}: ${answer.text.slice(0, 300)}`;
    }
    if (type === 'application/problem+json' && body.status !== answer.status)
      return `${answer.status}: the problem's status is ${body.status}`;
    const valid = this.compile(media.schema);
    return valid(body) ? '' : `${answer.status}: ${JSON.stringify(valid.errors)} in ${answer.text.slice(0, 500)}`;
  }

  arguments(operation) {
    const list = (operation.parameters ?? []).map((p) => ({ ...p, schema: p.schema ?? p.content['application/json'].schema, json: !p.schema }));
    const body = operation.requestBody?.content['application/json'].schema;

    return [...list, ...Object.entries(body?.properties ?? {}).map(([name, schema]) =>
      ({ name, in: 'body', required: body.required.includes(name), schema }))];
  }
}

export async function load(port, authorization) {
  const answer = await send(port, { method: 'GET', target: '/api/v1/openapi.json', headers: { Authorization: authorization } });

  if (answer.status !== 200)
    throw new Error(`openapi.json: ${answer.status} ${answer.text}`);
  return new Contract(JSON.parse(answer.text));
}

// The target of a path with its arguments.
export function target(path, inPath = {}, query = {}) {
  const text = Object.entries(query).map(([k, v]) => `${encodeURIComponent(k)}=${encodeURIComponent(v)}`).join('&');

  return path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(inPath[name] ?? name)) + (text ? `?${text}` : '');
}
