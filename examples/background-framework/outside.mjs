// Stands for the service's neighbours: an embedding API, webhooks, mail.  While the file "down"
// exists /embed and /hook answer 503; while "hold" exists they wait.  Each line of "served" is a
// request: path, and the number of texts or whether the signature is right.  Only /embed answers
// with JSON.
import { appendFileSync, existsSync, renameSync, writeFileSync } from 'node:fs';
import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

const server = createServer(async (request, response) => {
  let text = '';
  for await (const part of request) text += part;
  const [, path, status] = request.url.split('/');
  const busy = path === 'embed' || path === 'hook';
  const answer = (code, text, headers = {}) => response.writeHead(code, headers).end(text);

  while (busy && existsSync('hold')) await sleep(20);
  if (path === 'status') return answer(Number(status), '', status === '429' ? { 'Retry-After': '1' } : {});
  if (busy && existsSync('down')) return answer(503, '');
  const { texts } = JSON.parse(text);
  const signature = request.headers['x-signature'];
  const note = texts ? texts.length : !signature ? '' : signature === `sha256=${createHmac('sha256', 'secret').update(text).digest('hex')}`;
  appendFileSync('served', `${path} ${note}\n`);
  answer(200, texts ? JSON.stringify({ vectors: texts.map((words) => [words.length, 1]) }) : 'ok');
});
server.listen(0, '127.0.0.1', () => {
  writeFileSync('outside.part', `http://127.0.0.1:${server.address().port}`);
  renameSync('outside.part', 'outside.url');
});
