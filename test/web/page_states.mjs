// The states of screens: loading, empty, error, no right; stale without a server or PostgreSQL.
import { ok } from './contract.mjs';
import { Person, TIMEOUT_MS, postgres, sql, until, untilSql } from './browser.mjs';

const LISTS = [
  ['#/jobs', 'jobs'], ['#/dead', 'errors'], ['#/types', 'types'], ['#/limits', 'limits'], ['#/schedules', 'schedules'], ['#/workflows', 'workflows'], ['#/runs', 'runs'],
  ['#/tenants', 'tenants'], ['#/alerts', 'alerts'], ['#/audit', 'audit'], ['#/events', 'events'],
];

const problem = (status) => ({ status, contentType: 'application/problem+json',
  body: JSON.stringify({ type: 'about:blank', status, title: 'A title', detail: 'A detail of the problem', hint: 'A hint of the problem' }) });

const one = async (text) => (await sql(text)).split('\n')[0];
const job = () => one(`SELECT id FROM jobq.jobs WHERE tenant = 'acme' AND job_type = 'sync' AND status = 'retry'`);
const failed = () => one(`SELECT id FROM jobq.jobs WHERE tenant = 'acme' AND job_type = 'invoice' AND status = 'error' ORDER BY id DESC LIMIT 1`);
const run = () => one(`SELECT id FROM jobq.jobs WHERE tenant = 'acme' AND job_type = 'publish' ORDER BY id LIMIT 1`);

// Screens of one thing, or of two lists: what they read, and a word of theirs.
const things = async () => [
  [`#/jobs/${await job()}`, `jobs/${await job()}`, 'provider'], ['#/types/mail', 'types/mail', 'Numbers'], ['#/schedules/nightly?tenant=acme', 'schedules/nightly', 'Definition'],
  [`#/runs/${await run()}`, `runs/${await run()}`, 'ingest'], ['#/workflows/publish', 'workflows/publish', 'approval'], ['#/tenants/acme', 'admin/jobs', 'Quota'],
  ['#/rules', 'signals', 'live_call'], ['#/rules', 'rules', 'live_call'],
];

// Each screen while its answer is late, when that is an error, and when the role has no right.
async function answers() {
  const ann = await Person.arrive('ann', { refused: [500, 403] });
  const { page } = ann;
  const says = (selector) => page.locator(`main ${selector}`).locator('visible=true').first();

  for (const [fragment, path, text] of [...LISTS.map(([f, p]) => [f, p, '']), ...await things()]) {
    const address = new RegExp(`/${path}(\\?.*)?$`);
    const leave = () => ann.go(fragment === '#/alerts' ? '#/audit' : '#/alerts', fragment === '#/alerts' ? 'create' : 'Severity');
    const open = () => page.evaluate((f) => { location.hash = f; }, fragment);
    let answer;
    const asked = new Promise((resolve) => { answer = resolve; });

    await leave();
    await page.route(address, async (route) => {
      await asked;
      await route.fallback();
    });
    await open();
    await says('.loading').waitFor();
    ok(await page.locator('main h1').count() === 1, `${fragment}, ${path}: it has its title while it loads`, await ann.text());
    await ann.sound(`${fragment}, ${path}: loading`);
    answer();
    await ann.shown(fragment, text);
    await page.unroute(address);
    for (const [status, selector] of [[500, '.trouble'], [403, '.trouble.denied']]) {
      await leave();
      await page.route(address, (route) => route.fulfill(problem(status)));
      await open();
      await says(selector).waitFor();
      const words = await says(selector).innerText();
      const needed = ['A title', 'A detail of the problem', 'A hint of the problem', status === 403 ? 'grant_access' : 'Try again'];
      ok(needed.every((t) => words.includes(t)) && (status === 500 || !words.includes('Try again')) && await page.locator('main h1').count() === 1,
        `${fragment}, ${path}: ${status} is shown with what helps, below the title`, words);
      await ann.sound(`${fragment}, ${path}: ${status}`);
      await page.unroute(address);
    }
  }
  for (const [fragment, text] of [['#/jobs/00000000-0000-7000-8000-000000000000', 'No such job'], ['#/types/nothing', 'nothing'], ['#/schedules/nothing', 'nothing'],
    ['#/runs/00000000-0000-7000-8000-000000000000', 'Run'], ['#/workflows/nothing', 'nothing']]) {
    await ann.expecting([404], async () => {
      await ann.go(fragment, text);
      ok(await page.locator('main .trouble, main .empty').count() > 0 && !(await ann.text()).includes('has an error'), `${fragment}: what does not exist is said`, await ann.text());
    });
  }
  await ann.leave('late answers, errors, no right');
}

// The overview: its first answer is late, then an error, no right, a server without job types.
async function overview() {
  const ann = await Person.arrive(null, { refused: [401, 403, 500] });
  const { page } = ann;
  let reply;
  let come;
  const answer = new Promise((resolve) => { come = resolve; });

  await page.route('**/api/v1/stream', (route) => route.abort('aborted'));
  await page.route('**/api/v1/overview', async (route) => {
    await answer;
    await reply(route);
  });
  reply = (route) => route.fulfill(problem(500));
  await ann.signIn('ann');
  await page.locator('main .loading').first().waitFor();
  come();
  await page.locator('main .trouble').getByText('A detail of the problem').waitFor();
  ok(true, 'overview: loading, then an error');
  reply = (route) => route.fulfill(problem(403));
  await ann.button('Try again').click();
  await page.locator('main .trouble.denied').getByText('grant_access').waitFor();
  await page.locator('main .empty').getByText('Your role sees jobs').waitFor();
  ok(true, 'without the right it says what the role sees');
  reply = async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...await response.json(), types: [] } });
  };
  // what was refused is not asked for again by itself
  await page.evaluate(() => { document.dispatchEvent(new Event('visibilitychange')); });
  await page.locator('main .empty').getByText('There is no job type yet').waitFor();
  ok(true, 'without job types it says what makes one');
  reply = (route) => route.fulfill(problem(403));
  await page.locator('main .trouble.denied').getByText('grant_access').waitFor();
  ok(!(await ann.text()).includes('There is no job type yet'), 'when the right is gone, so is what was read');
  await ann.leave('overview');
}

// What a screen has read stays when its requests fail, those of the frame do not, and is renewed
// by itself afterwards.
async function kept() {
  const tim = await Person.arrive(null, { refused: [401, 403, 'failed'], colorScheme: 'dark' });
  const { page } = tim;
  const OWN = /\/api\/v1\/(?!overview|stream)|\/admin\//;
  const renew = () => page.evaluate(() => { document.dispatchEvent(new Event('visibilitychange')); });

  // a list of jobs that is slow to read is read again less often: here none is slow
  await tim.context.addInitScript(() => { performance.now = () => 0; });
  await tim.signIn('tim');
  for (const [fragment, text] of [['#/jobs', 'acme'], ['#/dead', 'provider'], ['#/types', 'transcode'], ['#/limits', 'gpu'], ['#/schedules', 'nightly'], ['#/workflows', 'publish'],
    ['#/runs', 'publish'], ['#/tenants', 'acme'], ['#/alerts', 'invoice'], ['#/audit', 'Audit'], ['#/events', 'invoice'],
    ...(await things()).slice(0, -1).map(([f, , t]) => [f, t]), [`#/jobs/${await failed()}`, 'Failed for good']]) {
    await tim.go(fragment, text);
    await page.route(OWN, (route) => route.abort());
    await renew();
    await page.locator('main .stale').locator('visible=true').first().waitFor();
    ok((await tim.text()).includes(text), `${fragment}: what was read stays, with a banner`, await tim.text());
    await tim.sound(`${fragment}: stale`);
    await page.unroute(OWN);
    if (!['#/jobs', '#/types'].includes(fragment))
      await renew();   // the others wait as long
    await page.waitForFunction(() => !document.querySelector('main .stale'));
    ok((await tim.text()).includes(text), `${fragment}: the banner goes by itself`, await tim.text());
  }
  await tim.leave('stale screens');
}

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
    await ann.sound(`${fragment}: empty`);
    await page.unroute(address);
  }
  // screens of two lists
  await page.route(/\/(signals|rules)(\?.*)?$/, (route) => route.fulfill({ json: { items: [], next: null } }));
  await ann.go('#/alerts', 'Severity');
  await ann.go('#/rules', 'No signal.');
  ok((await ann.text()).includes('No rule.'), '#/rules: empty: both lists say what would fill them', await ann.text());
  // a thing that has nothing yet
  await sql(`SELECT jobq.create_job_type('unused'), jobq.schedule('unused', '@yearly', 'unused')`);
  for (const [fragment, texts] of [['#/types/unused', ['No job has failed']], ['#/schedules/unused', ['None']], ['#/tenants/unused', ['0 live jobs', 'none of its own']],
    ['#/jobs?job_type=unused', ['No job matches the filter']], ['#/dead?job_type=unused', ['No error like that']], ['#/types?find=unheard', ['No job type is like this']]]) {
    await ann.go(fragment, texts[0]);
    const words = await ann.text();
    ok(texts.every((t) => words.includes(t)), `${fragment}: empty`, words);
    await ann.sound(`${fragment}: empty`);
  }
  await sql(`SELECT jobq.unschedule('unused'), jobq.drop_job_type('unused')`);
  await ann.leave('loading, empty');
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

// The administrator of one tenant has the levers of its jobs, not those that are of all tenants.
async function ofTenant() {
  const tim = await Person.arrive(null, { refused: [401, 403] });
  const { page } = tim;
  const words = () => page.evaluate(() => [...document.querySelectorAll('main button:not(.sort), main a.button')].map((e) => e.getAttribute('aria-label') ?? e.innerText.trim()));
  const dead = await failed();
  const wanted = [['#/', 'Overview', []], ['#/types', 'transcode', []], ['#/types/newsletter', 'newsletter', []], ['#/limits', 'gpu', []], ['#/rules', 'live_call', []], ['#/tenants', 'acme', []],
    ['#/workflows', 'publish', []], ['#/tenants/acme', 'Quota', ['Delete all data …']], ['#/jobs', 'acme', ['Cancel all …', 'Retry all …', 'Enqueue']],
    ['#/dead', 'provider', ['Retry all …', 'Purge all …']], [`#/jobs/${dead}`, 'Failed for good', ['Retry', 'Run again as new']], ['#/schedules', 'nightly', ['New schedule …']],
    ['#/workflows/publish', 'approval', ['Run …']]];

  // rates are of two overviews: the third one comes after they have been drawn
  await page.route('**/api/v1/stream', (route) => route.abort('aborted'));
  let overviews = 0;
  page.on('response', (response) => { overviews += Number(response.url().endsWith('/overview')); });
  await tim.signIn('tim');
  await until(() => overviews >= 3, 'three overviews');
  for (const [fragment, text, levers] of wanted) {
    await tim.go(fragment, text);
    const found = (await words()).filter((word) => ACTIONS.test(word) && !/^(Retry|Purge): |^(Pause|Run) nightly/.test(word));
    ok(JSON.stringify(found) === JSON.stringify(levers) && await page.locator('main [role=switch]').count() === 0, `${fragment}: an administrator of one tenant has ${levers.join(', ') || 'no lever'}`, found.join(', '));
    const numbers = await page.evaluate(() => [...document.querySelectorAll('main .tiles dd, main .facts dd:not(:has(.badge)), main td.n')].map((e) => e.innerText));
    ok(!numbers.some((n) => /NaN|undefined|null|Infinity/.test(n)), `${fragment}: what is not known is not shown as a number`, numbers.join(', '));
    await tim.picture(`of-tenant-${fragment.replace(/\W+/g, '-')}`);
  }
  const runs = await sql(`SELECT runs FROM jobq.jobs WHERE id = '${dead}'`);
  await tim.go(`#/jobs/${dead}`, 'Failed for good');
  await tim.button('Retry').click();
  await untilSql(`SELECT runs > ${runs} AND status = 'error' FROM jobq.jobs WHERE id = '${dead}'`);
  ok(true, 'and it works');
  await tim.leave('administrator of one tenant');
}

// A tab that is not seen has no stream and reads nothing; seen again, it does both.
async function hidden() {
  const ann = await Person.arrive(null, { refused: [401] });
  const { page } = ann;
  let seen = [];
  const streams = () => page.evaluate(() => window.streams.map((s) => s.readyState));
  const streaming = () => until(async () => (await streams()).at(-1) === 1, 'a stream is open');
  const traffic = () => sql(`SELECT jobq.enqueue('not seen') FROM pg_sleep(0.2)`);
  const turn = (state) => page.evaluate((value) => {
    Object.defineProperty(document, 'visibilityState', { configurable: true, value });
    document.dispatchEvent(new Event('visibilitychange'));
  }, state);

  await ann.context.addInitScript(() => {
    performance.now = () => 0;   // as above
    window.streams = [];
    window.EventSource = class extends EventSource {
      constructor(...given) {
        super(...given);
        window.streams.push(this);
      }
    };
  });
  page.on('request', (request) => { seen.push(request.url()); });
  await sql(`SELECT jobq.create_job_type('not seen')`);
  await ann.signIn('ann');
  await ann.go('#/jobs?tenant=acme', 'acme');
  await streaming();
  seen = [];
  await until(async () => await traffic() && seen.some((url) => url.includes('/api/v1/jobs')), 'the stream makes the list be read');
  await turn('hidden');
  seen = [];
  ok((await streams()).every((state) => state === 2), 'a hidden tab closes its stream', await streams());
  for (const end = Date.now() + 6000; Date.now() < end;)
    await traffic();
  ok(seen.length === 0, 'and reads nothing', seen.join(' '));
  await turn('visible');
  await streaming();
  await until(() => seen.some((url) => url.includes('/api/v1/jobs')), 'the list is read');
  ok(true, 'seen again it has a stream and reads');
  await sql(`SELECT jobq.drop_job_type('not seen', force => true)`);
  await ann.leave('hidden tab');
}

// The module of a screen that has been left comes too late, and fails: the newer screen stays.
async function late() {
  const ann = await Person.arrive('ann', { refused: ['failed'] });
  const { page } = ann;
  let fail;
  const held = new Promise((resolve) => { fail = resolve; });

  await page.route('**/assets/schedules.js', async (route) => {
    await held;
    await route.abort();
  });
  const asked = page.waitForRequest('**/assets/schedules.js');
  await page.evaluate(() => { location.hash = '#/schedules'; });
  await asked;
  await ann.go('#/limits', 'gpu');
  const failed = page.evaluate(() => import(new URL('assets/schedules.js', document.baseURI)).then(() => false, () => true));
  fail();
  ok(await failed, 'a module fails');
  await page.evaluate(() => new Promise((resolve) => { requestAnimationFrame(() => requestAnimationFrame(resolve)); }));
  ok(await ann.text('main h1') === 'Limits', 'the screen that was opened after it stays', await ann.text());
  await ann.leave('late module');
}

async function stale() {
  const ann = await Person.arrive('ann', { refused: ['failed', 503, 500] });
  const ben = await Person.arrive('ben', { refused: ['failed', 503, 500] });

  await ann.go('#/', 'archive');
  await ben.go('#/limits', 'gpu');
  await postgres('stop', '-m', 'fast');
  try {
    await ann.page.locator('.stale').first().waitFor();
    await ben.page.locator('.stale').first().waitFor();
    ok((await ann.text()).includes('archive') && (await ben.text()).includes('gpu'), 'without PostgreSQL what was read stays, with a banner');
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
  await until(async () => (await ann.text()).includes('archive'), 'it comes back by itself');
  await ann.leave('stale overview');
  await ben.leave('stale list');
}

export const groups = {
  'loading, empty': simple, 'late answers, errors': answers, 'overview states': overview, 'rights': rights, 'administrator of one tenant': ofTenant, 'kept screens': kept, 'hidden tab': hidden, 'late module': late, 'stale': stale,
};
