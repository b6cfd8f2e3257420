// The states of screens: loading, empty, error, no right, and stale while PostgreSQL is away.
import { ok } from './contract.mjs';
import { Person, TIMEOUT_MS, postgres, sql, until } from './browser.mjs';

const LISTS = [
  ['#/jobs', 'jobs'], ['#/dead', 'errors'], ['#/types', 'types'], ['#/limits', 'limits'], ['#/schedules', 'schedules'], ['#/workflows', 'workflows'], ['#/runs', 'runs'],
  ['#/tenants', 'tenants'], ['#/alerts', 'alerts'], ['#/audit', 'audit'], ['#/events', 'events'],
];

async function simple() {
  const ann = await Person.arrive('ann', { refused: [500] });
  const { page } = ann;
  const says = (selector) => page.locator(`main ${selector}`).locator('visible=true').first();

  for (const [fragment, path] of LISTS) {
    const address = new RegExp(`/api/v1/${path}(\\?.*)?$`);
    let answer;
    const asked = new Promise((resolve) => { answer = resolve; });

    await ann.go('#/rules', 'live_call');
    await page.route(address, async (route) => {
      await asked;
      await route.fulfill({ json: { items: [], next: null } });
    });
    await page.evaluate((f) => { location.hash = f; }, fragment);
    await says('.loading').waitFor();
    answer();
    await says('.empty').waitFor();
    const words = await says('.empty').innerText();
    ok(/jobq\.|make|comes here|leaves|leave|raises|New|start|other|hold/.test(words), `${fragment}: loading; empty: says what would fill it`, words);
    await page.unroute(address);

    await ann.go('#/rules', 'live_call');
    await page.route(address, (route) => route.fulfill({ status: 500, contentType: 'application/problem+json',
      body: JSON.stringify({ type: 'about:blank', status: 500, title: 'A title', detail: 'A detail of the problem', hint: 'A hint of the problem' }) }));
    await page.evaluate((f) => { location.hash = f; }, fragment);
    await says('.trouble').waitFor();
    const trouble = await says('.trouble').innerText();
    ok(['A title', 'A detail of the problem', 'A hint of the problem'].every((t) => trouble.includes(t)), `${fragment}: an error has its title, detail and hint`, trouble);
    await page.unroute(address);
  }
  await ann.leave('loading, empty, error');
}

// Words of actions on buttons and links that look like buttons.
const ACTIONS = /^(Pause|Resume|Cancel|Retry|Purge|Enqueue|Stop|Start|Drop|Set|Run|New|Change|Backfill|Delete|Send|Switch|Remove)\b/;

async function rights() {
  const guest = await Person.arrive('guest', { refused: [403, 404] });
  const { page } = guest;
  const umbra = await sql(`SELECT id FROM jobq.jobs WHERE tenant = 'umbra' AND job_type = 'invoice' LIMIT 1`);
  const mine = await sql(`SELECT id FROM jobq.jobs WHERE tenant = 'acme' AND status = 'error' LIMIT 1`);
  const run = await sql(`SELECT id FROM jobq.jobs WHERE tenant = 'acme' AND job_type = 'publish' LIMIT 1`);
  const screens = [['#/', 'Overview'], ['#/jobs', 'acme'], ['#/dead', 'provider'], [`#/jobs/${mine}`, 'provider'], ['#/types', 'transcode'], ['#/types/invoice', 'invoice'], ['#/limits', 'Limits'],
    ['#/rules', 'Rules'], ['#/schedules', 'nightly'], ['#/workflows', 'publish'], ['#/runs', 'publish'], [`#/runs/${run}`, 'ingest'], ['#/tenants', 'Tenants'], ['#/tenants/acme', 'acme'],
    ['#/alerts', 'invoice'], ['#/audit', 'Audit'], ['#/events', 'Events']];
  const seen = [];
  const actions = [];

  await page.waitForSelector('main .trouble.denied');
  ok(/grant_access/.test(await guest.text()), 'the overview says which right is missing');
  for (const [fragment, text] of screens) {
    await guest.go(fragment, text);
    await page.evaluate(() => document.querySelectorAll('main details').forEach((d) => { d.open = true; }));
    const html = await page.content();
    if (html.includes('umbra'))
      seen.push(`${fragment}: ${html.slice(html.indexOf('umbra') - 100, html.indexOf('umbra') + 20)}`);
    for (const word of await page.evaluate(() => [...document.querySelectorAll('main button:not(.sort), main a.button')].map((e) => e.innerText.trim())))
      if (ACTIONS.test(word))
        actions.push(`${fragment}: ${word}`);
  }
  ok(seen.length === 0, 'a reader of one tenant gets nothing of another one', seen.join('\n# '));
  ok(actions.length === 0, 'nor any action', actions.join('\n# '));
  await guest.go(`#/jobs/${umbra}`, 'No such job');
  ok(!(await page.content()).includes('503'), 'a job of another tenant is not there');
  for (const key of ['c', 'r', 'x']) {
    await guest.go('#/jobs', 'acme');
    await page.keyboard.press('j');
    await page.keyboard.press(key);
  }
  await page.evaluate(() => import(new URL('assets/form.js', document.baseURI)));  // a dialog would wait for it
  ok(await guest.dialog.count() === 0 && await page.locator('.bar-actions').count() === 0, 'keys of actions do nothing');
  await guest.leave('rights');
}

async function stale() {
  const ann = await Person.arrive('ann', { refused: ['failed', 503, 500] });
  const ben = await Person.arrive('ben', { refused: ['failed', 503, 500] });

  await ann.go('#/', 'transcode');
  await ben.go('#/limits', 'gpu');
  await postgres('stop', '-m', 'fast');
  try {
    await ann.page.locator('.stale').first().waitFor();
    await ben.page.locator('.stale').first().waitFor();
    ok((await ann.text()).includes('transcode') && (await ben.text()).includes('gpu'), 'without PostgreSQL what was read stays, with a banner');
    ok(/old/.test(await ann.text('.stale')), 'the banner says how old it is', await ann.text('.stale'));
    const early = await ann.text('.stale');
    await until(async () => (await ann.text('.stale')) !== early, 'the age grows');
    await ben.go('#/jobs', 'Jobs').catch(() => {});
    ok(/again|answer|connection/i.test(await ben.text()), 'another screen says that the server does not answer', await ben.text());
  } finally {
    await postgres('start');
  }
  const began = Date.now();
  await ann.page.locator('.stale').first().waitFor({ state: 'detached', timeout: 2 * TIMEOUT_MS });
  await ben.page.waitForFunction(() => document.querySelectorAll('main tr[data-row]').length > 0 && !document.querySelector('main .stale, main .trouble'), null, { timeout: 2 * TIMEOUT_MS });
  console.log(`# fresh ${Date.now() - began} ms after the start`);
  ok((await ann.text()).includes('transcode'), 'it comes back by itself');
  await ann.leave('stale overview');
  await ben.leave('stale list');
}

export const groups = { 'loading, empty, error': simple, 'rights': rights, 'stale': stale };
