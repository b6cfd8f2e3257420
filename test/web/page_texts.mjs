// Texts from outside that look like markup, scripts, addresses or controls: they are shown as text.
import { ok } from './contract.mjs';
import { Person, TIMEOUT_MS, sql, until } from './browser.mjs';

const run = 'window.__xss=1';
const HOSTILE = [
  ...[`<script>${run}</script>`, `<SCRIPT SRC=http://elsewhere.test/x.js></SCRIPT>`, `<img src=x onerror=${run}>`, `<img src=http://elsewhere.test/x.png>`,
    `"><img src=x onerror=${run}>`, `'><svg onload=${run}>`, `<svg><script>${run}</script></svg>`, `<svg/onload=${run}>`, `<svg><animate onbegin=${run} attributeName=x dur=1s>`,
    `<math><mtext></form><form><mglyph><style></math><img src onerror=${run}>`, `<iframe srcdoc="<script>parent.${run}</script>">`, `<iframe src="javascript:parent.${run}">`,
    `<body onload=${run}>`, `<details open ontoggle=${run}>x</details>`, `<video><source onerror=${run}></video>`, `<audio src=x onerror=${run}>`, `<input autofocus onfocus=${run}>`,
    `<select autofocus onfocus=${run}>`, `<textarea autofocus onfocus=${run}>`, `<marquee onstart=${run}>x</marquee>`, `<object data="javascript:${run}">`, `<embed src="javascript:${run}">`,
    `<a href="javascript:${run}">x</a>`, `<form action="javascript:${run}"><button>x`, `<link rel=stylesheet href=http://elsewhere.test/x.css>`, `<meta http-equiv=refresh content="0;url=http://elsewhere.test/">`,
    `<base href=http://elsewhere.test/>`, `<style>@import "http://elsewhere.test/x.css";</style>`, `<style>*{display:none}</style>`, `<div style="position:fixed;inset:0;background:red">`,
    `<template><script>${run}</script></template>`, `<noscript><p title="</noscript><img src=x onerror=${run}>">`, `<!--<img src="--><img src=x onerror=${run}>`, `<![CDATA[<script>${run}</script>]]>`,
    `</textarea><script>${run}</script>`, `</title><script>${run}</script>`, `</script><script>${run}</script>`, `</pre><img src=x onerror=${run}>`, `<xss onpointerover=${run} style=display:block>x`],
  `javascript:${run}`, `JaVaScRiPt:${run}`, `data:text/html,<script>${run}</script>`, `java\tscript:${run}`, 'vbscript:msgbox(1)', '//elsewhere.test/', 'http://elsewhere.test/', 'file:///etc/passwd',
  `';${run};//`, `";${run};//`, '`;' + run + ';//', '${' + run + '}', '{{' + run + '}}', '{{constructor.constructor("' + run + '")()}}', `#{${run}}`, `<%= ${run} %>`, `%3Cscript%3E${run}%3C/script%3E`,
  `&lt;script&gt;${run}&lt;/script&gt;`, '&amp;', '&#60;img&#62;', '\\u003cscript\\u003e', '\\x3cscript\\x3e', `' onmouseover='${run}`, `" onfocus="${run}" autofocus="`, '__proto__', 'constructor', 'toString', 'hasOwnProperty',
  `<b onclick=${run}>x</b>`, '<i id=app>', '</main>', '[x](javascript:1)', "' OR 1=1--", '{"a":1}', '[]', 'true', 'null', 'undefined', 'NaN', '-1', '0', '../../admin', '..', '.', '/', '//', '?', '#', '#/jobs', '%', '%00', '%2e%2e%2f', 'a?b=c&d=e#f', ' leading and trailing ', "O'Brien", '"quoted"', '\\', '\\0', '$$', '--', ';DROP TABLE jobq.queue',
  '\u202egnp.exe', '\u2066isolate\u2069', '\u200bzero\u200bwidth', '\ufeffmark', '\u0430dmin', 'ｆｕｌｌｗｉｄｔｈ', 'e\u0301\u0301\u0301\u0301', '👩‍👩‍👧‍👦🏴‍☠️', 'مرحبا', '日本語', 'x'.repeat(60), '<'.repeat(60),
];
const LONG = `<b>${'very long '.repeat(700)}</b><img src=x onerror=${run}>`;

const bytes = (text) => Buffer.byteLength(text);
const literal = (text) => `'${text.replace(/'/g, "''")}'`;
const json = (value) => literal(JSON.stringify(value));
// as names: without control characters, at most 63 bytes; no address can have the part . or ..
const names = [...new Set(HOSTILE.filter((s) => bytes(s) <= 60 && s.trim() === s && !/[\x00-\x1f]|^\.\.?$/.test(s)))];
// a tenant has no empty element
const tenantOf = (text) => text.replace(/[\x00-\x1f]/g, ' ').split('/').filter((part) => !['', '.', '..'].includes(part)).join('/').slice(0, 200) || 'x';

const nameOf = (text) => text.replace(/[\x00-\x1f]/g, ' ').trim().slice(0, 200);
const workerOf = (text) => nameOf(text).slice(0, 60);

// A job with its text in each place that a worker, a tool or a client fills; end: a call of its
// worker.
function jobSql(text, i, end, type = 'hostile') {
  const name = nameOf(text);
  return `SELECT jobq.enqueue('${type}', ${json({ text, [text]: i })}, tenant => ${literal(tenantOf(text))}, metadata => ${json({ [text]: text })}, unique_key => ${literal(name)}, concurrency_key => ${literal(name)});
WITH c AS MATERIALIZED (SELECT * FROM jobq.claim('{${type}}', worker => ${literal(workerOf(text))}))
SELECT ${end}::text FROM c;`;
}

// One that fails, one that ends well, and one whose try is told by its row: that has stderr.
function jobsSql(text, i) {
  const fail = `jobq.fail(id, lease_token, ${literal(text)}, retryable => false, error_code => ${literal(nameOf(text).slice(0, 20))}, details => ${json({ stderr: text, [text]: text })})`;
  return [jobSql(text, i, fail), jobSql(text, i, `jobq.complete(id, lease_token, ${json({ [text]: text })})`), jobSql(text, i, fail, 'quiet')];
}

function namesSql(text) {
  const t = literal(text);
  const tenant = literal(tenantOf(text));
  return `SELECT jobq.create_job_type(${t}), jobq.pause_job_type(${t}, ${t}), jobq.schedule(${t}, '@yearly', ${t}, ${json({ text })}, tenant => ${tenant}), jobq.set_limit(${t}, max_concurrent => 1),
  jobq.set_signal(${t}, true), jobq.set_pressure_rule(${t}, ${t}, priority_adj => 1), jobq.set_tenant_quota(${tenant}, max_live => 9);`;
}

// Runs statements, each in its own transaction: a claim sees only jobs of others.
async function all(texts) {
  await sql(texts.flatMap((text) => text.replace(/;\s*$/, '').split(';\nWITH').map((s, i) => `DO $do$ BEGIN EXECUTE $q$${i ? 'WITH' : ''}${s}$q$; END $do$;`)).join('\n'));
}

async function shows(ann, where, texts) {
  const missing = await ann.page.evaluate((list) => {
    const all = document.querySelector('main').textContent;
    return list.filter((t) => !all.includes(t));
  }, texts);
  ok(missing.length === 0, `${where}: ${texts.length} texts are shown as they are`, missing.map((t) => JSON.stringify(t)).join('\n# '));
}

async function quiet(ann, where) {
  const [xss, strange] = await ann.page.evaluate(() => [window.__xss,
    [...document.querySelectorAll('script:not([src]), iframe, object, embed, base, img, video, audio, [onerror], [onload], [onfocus], a[href^="javascript:" i], a[href^="//"], a[href^="data:"], main a[href^="http"]')].map((e) => e.outerHTML.slice(0, 200))]);
  ok(xss === undefined && strange.length === 0, `${where}: nothing of them is an element, an address or runs`, [`__xss ${xss}`, ...strange].join('\n# '));
}

// Lists have a button for their next page.
async function allPages(page) {
  const rows = () => page.evaluate(() => document.querySelectorAll('main tr[data-row]').length);
  const more = page.getByRole('button', { name: 'Show more' });

  while (await more.count()) {
    const before = await rows();
    await more.click();
    await page.waitForFunction((n) => document.querySelectorAll('main tr[data-row]').length > n, before);
  }
}

// A run whose payload, events, log, results and reason have all of the texts.
async function runOfTexts(ann) {
  const doc = json({ texts: HOSTILE });
  const many = HOSTILE.filter((s) => !/^[\s\x00-\x1f]*$/.test(s));

  await sql(`SELECT jobq.create_workflow('hostile run', '[{"key": "claimed", "job_type": "hostile"}, {"key": "event", "event": "go", "after": ["claimed"]}, {"key": "last", "job_type": "hostile", "after": ["event"]}]')`);
  const run = await sql(`SELECT jobq.enqueue('hostile run', ${doc}, tenant => '<b>')`);
  await until(async () => (await sql(`SELECT count(*) FROM jobq.jobs WHERE workflow_id = '${run}' AND task_key = 'claimed' AND status = 'pending'`)) === '1', 'the first task');
  const [task, token] = (await sql(`SELECT id, lease_token FROM jobq.claim('{hostile}', worker => '<i>worker</i>')`)).split('|');
  for (const text of many)
    await sql(`SELECT jobq.log_event(${literal(text)}, 'warning', 'log', ${json({ [text]: text })}, id => '${task}', lease_token => '${token}')`);
  await sql(`SELECT jobq.complete('${task}', '${token}', ${doc})`);
  await sql(`SELECT jobq.send_event('${run}', 'go', ${doc})`);
  await until(async () => (await sql(`SELECT count(*) FROM jobq.jobs WHERE workflow_id = '${run}' AND task_key = 'last' AND status = 'pending'`)) === '1', 'the last task');
  await sql(`SELECT jobq.cancel_job('${run}', ${literal(HOSTILE[0])})`);
  for (const step of ['claimed', 'event', 'last']) {
    await ann.go(`#/runs/${run}?step=${step}`, step);
    await ann.page.evaluate(() => document.querySelectorAll('main details').forEach((d) => { d.open = true; }));
    await quiet(ann, `a run, step ${step}`);
  }
  await shows(ann, 'a run', [HOSTILE[0], ...HOSTILE.map((t) => JSON.stringify(t))]);
  await ann.go(`#/jobs/${task}`, 'claimed');
  await ann.page.evaluate(() => document.querySelectorAll('main details').forEach((d) => { d.open = true; }));
  await ann.page.waitForFunction((n) => document.querySelector('main').textContent.includes(n), many.at(-1));
  await shows(ann, 'the events of a job', many);
  await quiet(ann, 'the events of a job');
}

async function texts() {
  await sql(`SELECT jobq.create_job_type('hostile', max_attempts => 1, options => '{"events": "all"}'), jobq.create_job_type('quiet', max_attempts => 1, options => '{"events": "none"}')`);
  await all([...HOSTILE, LONG].flatMap(jobsSql));
  await all(names.map(namesSql));
  const count = async (query) => Number(await sql(query));
  const types = (await sql(`SELECT name FROM jobq.job_types`)).split('\n');
  const made = names.filter((n) => types.includes(n));
  ok(made.length === names.length && made.length >= 100, `job types, schedules, limits, signals, tenants and reasons: ${made.length}`, names.filter((n) => !types.includes(n)).join('\n# '));
  const jobs = JSON.parse(await sql(`SELECT json_agg(json_build_object('id', id, 'text', payload->>'text', 'failed', status = 'error', 'quiet', job_type = 'quiet')) FROM jobq.jobs WHERE job_type IN ('hostile', 'quiet') AND status IN ('error', 'completed')`));
  ok(jobs.length === 3 * (HOSTILE.length + 1), `jobs with such payloads, results, errors, workers, tenants, keys and stderr: ${jobs.length}`, 3 * (HOSTILE.length + 1));

  const ann = await Person.arrive('ann', { refused: [429] });
  const { page } = ann;

  await ann.go('#/', 'Job types');
  await shows(ann, 'overview', made);
  await quiet(ann, 'overview');
  await ann.go('#/jobs?job_type=hostile', 'hostile');
  await quiet(ann, 'jobs');
  for (const [fragment, text] of [['#/types', 'hostile'], ['#/limits', 'gpu'], ['#/rules', 'live_call'], ['#/schedules', 'daily report'], ['#/tenants', 'Tenants']]) {
    await ann.go(fragment, text);
    await allPages(page);
    await shows(ann, fragment, fragment === '#/tenants' ? made.map(tenantOf) : made);
    await quiet(ann, fragment);
  }
  for (const [fragment, text] of [['#/dead', 'Dead letters'], ['#/alerts', 'Alerts'], ['#/audit', 'Audit'], ['#/events', 'Events']]) {
    await ann.go(fragment, text);
    await page.evaluate(() => document.querySelectorAll('main details').forEach((d) => { d.open = true; }));
    await quiet(ann, fragment);
  }

  const bad = [];
  for (const { id, text, failed, quiet } of jobs) {
    const quoted = JSON.stringify(text);
    const places = [['pre[aria-label=Payload]', quoted], ['pre[aria-label=Metadata]', quoted], ['.facts', tenantOf(text)], ['.facts', workerOf(text)],
      ...failed ? [['pre[aria-label="Error details"]', quoted], ['.panel.error pre', text], ['.tries pre', text]] : [['pre[aria-label=Result]', quoted]],
      ...quiet ? [['.tries details pre', text]] : []];

    await page.evaluate((f) => { location.hash = f; }, `#/jobs/${id}`);
    await page.waitForFunction((i) => document.querySelector('main h1 + .about, main .about')?.innerText.includes(i) && !document.querySelector('main .loading'), id, { polling: 20 });
    const missing = await page.evaluate((list) => {
      document.querySelectorAll('main details').forEach((d) => { d.open = true; });
      const shown = (selector) => [...document.querySelectorAll(`main ${selector}`)].map((e) => e.textContent).join('\n');
      return [...list.filter(([selector, t]) => !shown(selector).includes(t)).map(([selector]) => selector), document.querySelector('main img, main script, main iframe') ? 'element' : ''].filter(Boolean).join(', ');
    }, places);
    if (missing)
      bad.push(`${quoted.slice(0, 100)}: ${missing}`);
  }
  ok(bad.length === 0, `${jobs.length} jobs show their texts as they are`, bad.join('\n# '));
  await quiet(ann, 'jobs one by one');
  await runOfTexts(ann);
  const odd = [];
  for (const name of made) {
    await page.evaluate((f) => { location.hash = f; }, `#/types/${encodeURIComponent(name)}`);
    const there = await page.waitForFunction((n) => document.querySelector('main h1')?.textContent === n && !document.querySelector('main .loading') && document.querySelector('main .note')?.textContent.includes(n), name, { polling: 20, timeout: TIMEOUT_MS / 3 }).catch(() => null);
    if (!there)
      odd.push(`${JSON.stringify(name)}: ${(await ann.text()).slice(0, 200)}`);
  }
  ok(odd.length === 0, `${made.length} types are found by their names, with their reasons`, odd.join('\n# '));
  ok(await count(`SELECT count(*) FROM jobq.jobs WHERE job_type IN ('hostile', 'quiet')`) >= jobs.length, 'the jobs are still there');
  await ann.leave('texts');
}

export const groups = { 'texts from outside': texts };
