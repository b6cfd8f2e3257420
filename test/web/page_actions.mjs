// What people do: by keys, with the mouse, two at once; each is seen in the database.
import { spawn } from 'node:child_process';
import { ok } from './contract.mjs';
import { screens } from './page_screens.mjs';
import { config, Person, sql, until, untilSql } from './browser.mjs';

const focused = () => {
  const e = document.activeElement;
  return e === document.body ? '' : `${e.tagName} ${e.id || e.getAttribute('aria-label') || e.textContent.trim().slice(0, 40)}`;
};

async function keys() {
  const ann = await Person.arrive('ann');
  const { page } = ann;
  const at = (fragment) => page.waitForFunction((f) => location.hash === f, fragment);
  const cursor = () => page.evaluate(() => document.querySelector('main tr[aria-current]')?.dataset.row ?? null);

  for (const [key, fragment] of [['j', 'jobs'], ['d', 'dead'], ['w', 'workflows'], ['s', 'schedules'], ['t', 'types'], ['l', 'limits'], ['r', 'rules'], ['n', 'tenants'], ['a', 'alerts'], ['u', 'audit'], ['e', 'events'], ['o', '']]) {
    await page.keyboard.press('g');
    await page.keyboard.press(key);
    await at(`#/${fragment}`);
    await page.waitForFunction(() => document.activeElement?.tagName === 'H1');
  }
  ok(true, 'g and a letter: each goes to its screen, whose heading has the focus');

  await ann.go('#/jobs?job_type=archive', 'archive');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  ok(await cursor() === '1', 'j and k move the cursor', await cursor());
  await page.keyboard.press('x');
  ok((await ann.text('.bar-actions')).startsWith('1 selected'), 'x selects the row', await ann.text('.bar-actions'));
  await page.keyboard.press('x');
  const id = await page.evaluate(() => document.querySelector('main tr[aria-current] a').getAttribute('href'));
  await page.keyboard.press('Enter');
  await ann.shown(id, id.slice('#/jobs/'.length));
  ok(true, 'Enter opens the row');

  await ann.go('#/jobs?job_type=archive', 'archive');
  await page.keyboard.press('/');
  ok(await page.evaluate(() => document.activeElement.id) === 'filter-job_type', '/ goes to the filter', await page.evaluate(focused));
  await page.keyboard.press('Escape');
  ok(await page.evaluate(focused) === '', 'Escape leaves it', await page.evaluate(focused));
  await page.keyboard.press('?');
  await ann.dialog.getByText('next, previous row').waitFor();
  await page.keyboard.press('g');
  await page.keyboard.press('d');
  ok(await page.evaluate(() => location.hash) === '#/jobs?job_type=archive', '? shows the keys, which do nothing meanwhile', await page.evaluate(() => location.hash));
  await page.keyboard.press('Escape');
  await ann.dialog.waitFor({ state: 'detached' });
  await page.keyboard.press('Control+k');
  await ann.dialog.getByRole('combobox').fill('limits');
  await page.keyboard.press('Enter');
  await at('#/limits');
  ok(true, 'Ctrl-K goes to a page by its name');
  await page.keyboard.press('Control+k');
  await ann.dialog.getByRole('combobox').fill(id.slice('#/jobs/'.length));
  await page.keyboard.press('Enter');
  await at(id);
  ok(true, 'Ctrl-K goes to a job by its id');

  // c and r, with the cursor and with a selection
  await ann.go('#/jobs?job_type=archive&status=pending', 'archive');
  const rows = await page.evaluate(() => [...document.querySelectorAll('main tr[data-row] td a')].slice(0, 3).map((a) => a.getAttribute('href').slice('#/jobs/'.length)));
  await page.keyboard.press('j');
  await page.keyboard.press('x');
  await page.keyboard.press('j');
  await page.keyboard.press('x');
  await page.keyboard.press('c');
  await ann.dialog.getByLabel('Reason').fill('by key');
  await page.keyboard.press('Enter');
  await untilSql(`SELECT count(*) = 2 FROM jobq.jobs WHERE status = 'cancelled' AND error_msg = 'by key' AND id IN ('${rows[0]}', '${rows[1]}')`);
  ok(await sql(`SELECT status FROM jobq.jobs WHERE id = '${rows[2]}'`) === 'pending', 'c cancels the selected jobs, with the reason, and no other');
  await ann.go('#/jobs?job_type=invoice&status=error', 'provider');
  const dead = await page.evaluate(() => document.querySelector('main tr[data-row] td a').getAttribute('href').slice('#/jobs/'.length));
  const runs = await sql(`SELECT runs FROM jobq.jobs WHERE id = '${dead}'`);
  await page.keyboard.press('j');
  await page.keyboard.press('r');
  await untilSql(`SELECT runs = ${runs} + 1 AND status = 'error' FROM jobq.jobs WHERE id = '${dead}'`);
  ok(true, 'r retries the job at the cursor');
  await ann.leave('keys');
}

// Presses Tab until the focus has been everywhere; returns what it missed and where it is not seen.
async function tabs(person) {
  const { page } = person;

  await page.evaluate(() => {
    document.activeElement.blur();
    window.reached = new Set();
    window.unseen = [];
    window.noted = () => {
      const e = document.activeElement;
      if (e === document.body || window.reached.has(e))
        return window.reached.size;
      window.reached.add(e);
      const style = getComputedStyle(e);
      const r = e.getBoundingClientRect();
      // a node of a graph has a thick edge
      const ring = (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2) || style.boxShadow !== 'none'
        || parseFloat(getComputedStyle(e.querySelector('.card') ?? e).strokeWidth) >= 3;
      if (!ring || r.bottom <= 0 || r.top >= innerHeight || r.right <= 0 || r.left >= innerWidth)
        window.unseen.push(`${e.tagName} ${e.id || e.getAttribute('aria-label') || e.textContent.trim().slice(0, 40)} ${ring ? '' : 'no ring'}`);
      return window.reached.size;
    };
  });
  for (let still = 0, n = 0, before = 0; still < 6 && n < 400; n++) {
    await page.keyboard.press('Tab');
    const now = await page.evaluate(() => window.noted());
    still = now === before ? still + 1 : 0;
    before = now;
  }
  return page.evaluate(() => ({
    n: window.reached.size, unseen: window.unseen,
    missed: [...document.querySelectorAll('a[href], button, input, select, textarea, summary')]
      .filter((e) => !e.disabled && e.checkVisibility({ visibilityProperty: true }) && !window.reached.has(e))
      .map((e) => `${e.tagName} ${e.id || e.getAttribute('aria-label') || e.textContent.trim().slice(0, 40)}`),
  }));
}

async function tabulator() {
  const ann = await Person.arrive(null, { refused: [401] });
  const { page } = ann;
  const READS = /\/api\/v1\/|\/admin\//;

  await page.route('**/api/v1/stream', (route) => route.abort('aborted'));
  await ann.signIn('ann');
  for (const [name, fragment, text] of [...await screens(), ['errors', '#/jobs?status=error', 'provider']]) {
    await ann.go(fragment, text);
    await page.route(READS, () => {});  // its rows stay the same meanwhile
    const { n, missed, unseen } = await tabs(ann);
    ok(n > 10 && missed.length === 0, `${name}: Tab reaches all of its ${n} controls`, missed.join('\n# '));
    ok(unseen.length === 0, `${name}: the focus is seen`, unseen.join('\n# '));
    await page.unroute(READS);
  }
  await ann.leave('Tab');
}

async function jobs() {
  const ann = await Person.arrive('ann');
  const { page } = ann;

  await ann.go('#/jobs', 'archive');
  const filter = page.locator('#filter-job_type');
  await filter.pressSequentially('arch');
  const drawn = await page.evaluate(() => new Promise((resolve) => {
    // the overview comes each second, and with it the screen is drawn again
    const stop = new MutationObserver(() => { stop.disconnect(); setTimeout(() => resolve(true), 2500); });
    stop.observe(document.querySelector('main'), { subtree: true, childList: true, characterData: true, attributes: true });
  }));
  ok(drawn && await filter.inputValue() === 'arch', 'what is typed stays while the screen is drawn again', await filter.inputValue());
  await filter.fill('');

  await ann.go('#/jobs?job_type=archive', 'archive');
  await ann.button('Enqueue').click();
  await ann.dialog.getByLabel('Payload').fill('{"from": "the page"');
  await ann.dialog.locator('button[type=submit]').click();
  await ann.dialog.getByText('this is not JSON').waitFor();
  ok(await page.evaluate(() => document.activeElement.getAttribute('aria-invalid')) === 'true', 'a form keeps what is wrong, names it and has the focus there');
  await ann.dialog.getByLabel('Payload').fill('{"from": "the page"}');
  await ann.dialog.getByLabel('Tenant').fill('acme');
  await ann.dialog.locator('button[type=submit]').click();
  await page.waitForFunction(() => /^#\/jobs\/[0-9a-f-]{36}$/.test(location.hash));
  const id = (await page.evaluate(() => location.hash)).slice('#/jobs/'.length);
  ok(await sql(`SELECT payload->>'from', tenant, job_type FROM jobq.jobs WHERE id = '${id}'`) === 'the page|acme|archive', 'a job is enqueued from the page');

  await ann.shown(`#/jobs/${id}`, 'Why it does not start').catch(() => {});
  await ann.button('Cancel').click();
  await ann.dialog.getByLabel('Reason').fill('a test');
  await ann.dialog.locator('button[type=submit]').click();
  await page.locator('main h1').getByText('cancelled').waitFor();
  ok(await sql(`SELECT status, error_msg FROM jobq.jobs WHERE id = '${id}'`) === 'cancelled|a test', 'a job is cancelled, and its page shows that');
  await ann.button('Retry').click();
  await untilSql(`SELECT status = 'pending' FROM jobq.jobs WHERE id = '${id}'`);
  ok(true, 'and made to wait again');
  const dead = await sql(`SELECT id FROM jobq.jobs WHERE job_type = 'invoice' AND status = 'error' ORDER BY id LIMIT 1`);
  await ann.go(`#/jobs/${dead}`, 'Failed for good');
  // an answer that comes when its screen was left
  let come;
  let asked = 0;
  const held = new Promise((resolve) => { come = resolve; });
  await page.route(`**/jobs/${dead}/retry`, async (route) => {
    await held;
    await route.fulfill({ json: { ok: true } });
  });
  await ann.button('Retry').click();
  await ann.go('#/limits', 'gpu');
  page.on('request', (request) => { asked += Number(request.url().endsWith(`/jobs/${dead}`)); });
  const answered = page.waitForResponse(`**/jobs/${dead}/retry`);
  come();
  await answered;
  await page.waitForResponse('**/api/v1/limits/usage');
  ok(asked === 0, 'an action that is answered after its screen was left reads nothing', asked);
  await page.unroute(`**/jobs/${dead}/retry`);
  await ann.go(`#/jobs/${dead}`, 'Failed for good');
  await ann.button('Retry').click();
  await untilSql(`SELECT runs >= 2 AND status = 'error' FROM jobq.jobs WHERE id = '${dead}'`);
  await page.getByText('Try 2', { exact: true }).waitFor();
  ok(true, 'a dead letter is retried, and its page shows the second try');
  const step = await sql(`SELECT id FROM jobq.jobs WHERE job_type IS NULL AND status = 'blocked' ORDER BY id LIMIT 1`);
  await ann.go(`#/jobs/${step}`, 'step approval');
  ok(!/null|undefined/.test(await ann.text('main .head') + await ann.text('main .facts')) && !/null/.test(await page.title()), 'a step without a type has its key as its name', await ann.text());
  await ann.leave('jobs');
}

async function levers() {
  const ann = await Person.arrive('ann');
  const { page } = ann;

  await ann.go('#/types/mail', 'Numbers');
  await ann.button('Pause mail').click();
  await ann.dialog.getByLabel('Reason').fill('maintenance of the relay');
  await ann.dialog.locator('button[type=submit]').click();
  await page.locator('.note').getByText('maintenance of the relay').waitFor();
  ok(await sql(`SELECT paused, pause_reason FROM jobq.job_types WHERE name = 'mail'`) === 't|maintenance of the relay', 'a type is paused');
  await ann.go('#/', 'Resume mail');
  await ann.button('Resume mail').click();
  await untilSql(`SELECT NOT paused FROM jobq.job_types WHERE name = 'mail'`);
  ok(true, 'the verdict has the lever that resumes it');

  await ann.button('Stop all jobs').click();
  const send = ann.dialog.locator('button[type=submit]');
  await ann.dialog.getByLabel('Reason').fill('a test');
  ok(await send.isDisabled(), 'to stop all asks for the name');
  await ann.dialog.getByLabel('Type postgres').fill('postgre');
  ok(await send.isDisabled(), 'a part of the name is not enough');
  await ann.dialog.getByLabel('Type postgres').fill('postgres');
  await send.click();
  await ann.button('Start jobs').click();
  await until(async () => (await sql(`SELECT string_agg(action, ' ' ORDER BY id) FROM jobq.audit WHERE action IN ('stop_all', 'start_all')`)) === 'stop_all start_all', 'stop and start in the audit');
  ok(true, 'all jobs are stopped and started');
  await ann.go('#/limits', 'gpu');
  await ann.button('Drop gpu').click();
  ok(await send.isDisabled(), 'to drop a limit asks for its name');
  await page.keyboard.press('Escape');

  await ann.go('#/schedules/daily%20report', 'Europe/Berlin');
  await ann.button('Pause').click();
  await ann.dialog.locator('button[type=submit]').click();
  await untilSql(`SELECT status = 'paused' FROM jobq.schedules WHERE name = 'daily report'`);
  await ann.button('Resume').click();
  await untilSql(`SELECT status = 'active' FROM jobq.schedules WHERE name = 'daily report'`);
  const before = await sql(`SELECT count(*) FROM jobq.jobs WHERE metadata->>'schedule' = 'daily report'`);
  await ann.button('Run now').click();
  await ann.dialog.locator('button[type=submit]').click();
  await untilSql(`SELECT count(*) = ${before} + 1 FROM jobq.jobs WHERE metadata->>'schedule' = 'daily report'`);
  ok(true, 'a schedule is paused, resumed and run');

  const run = await sql(`SELECT id FROM jobq.jobs WHERE job_type = 'publish' AND status = 'error' ORDER BY id LIMIT 1`);
  await sql('UPDATE switch SET repaired = true');
  await ann.go(`#/runs/${run}?step=upload`, 'Retry from here');
  await ann.button('Retry from here').click();
  await ann.dialog.locator('button[type=submit]').click();
  await untilSql(`SELECT status = 'completed' FROM jobq.jobs WHERE id = '${run}'`);
  await page.locator('main .facts').getByText('completed').first().waitFor();
  ok(await sql(`SELECT runs FROM jobq.jobs WHERE workflow_id = '${run}' AND task_key = 'ingest'`) === '1', 'a run is retried from a task: what had completed is not done again');
  const waiting = await sql(`SELECT id FROM jobq.jobs WHERE job_type = 'publish' AND status = 'running' AND tenant = 'acme'`);
  await ann.go(`#/runs/${waiting}`, 'waits for the event');
  await page.locator('.events').getByRole('button', { name: 'Send' }).click();
  await ann.dialog.locator('button[type=submit]').click();
  await untilSql(`SELECT status = 'completed' FROM jobq.jobs WHERE id = '${waiting}'`);
  ok(true, 'an event is sent to a run');
  await ann.leave('levers');
}

// What is wrong, since when, what do jobs wait for, which step is late.
async function verdict() {
  const ann = await Person.arrive('ann');
  const { page } = ann;

  await ann.go('#/', 'Job types');
  const cause = page.locator('.verdict .causes li').filter({ hasText: 'jobs of paused types wait ("newsletter")' });
  await cause.getByText(/, for \d/).waitFor();
  ok(await cause.getByRole('button', { name: 'Resume newsletter' }).isVisible(), 'the verdict names the cause, since when, and has the lever');
  const held = page.locator('.verdict li').filter({ hasText: 'wait for their limit' });
  await held.getByText('transcode 1 of 1').waitFor();
  ok(/\d due/.test(await held.innerText()) && /the oldest for/.test(await held.innerText()), 'how many jobs wait for which limit, and for how long', await held.innerText());
  await held.getByRole('link', { name: 'Limits' }).click();
  await page.locator('main h1').getByText('Limits').waitFor();
  await ann.shown('#/limits', 'transcode');
  await ann.go('#/', 'Readings of the disk');
  await page.getByText('Readings of the disk').click();
  await page.getByText(/Disk in use|No reading yet/).first().waitFor();
  ok(true, 'the readings of the disk are a plot');

  await sql(`CREATE FUNCTION rendered(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN IF payload ? 'wait' THEN PERFORM gated('{}'); END IF; END $$;
    SELECT jobq.create_job_type('render', 'rendered(jsonb)');
    SELECT jobq.create_workflow('film', '[{"key": "titles", "job_type": "render"}, {"key": "frames", "job_type": "render", "payload": {"wait": true}, "after": ["titles"]}]')`);
  const run = await sql(`SELECT jobq.enqueue('film')`);
  await ann.go(`#/runs/${run}`, 'frames');
  await page.locator('.way').getByText('Late').waitFor();
  ok(/frames\s+runs for/.test(await ann.text('.way')) && !/titles/.test(await ann.text('.way')), 'a run names the step that is late', await ann.text('.way'));
  await sql(`SELECT jobq.cancel_job('${run}')`);
  await ann.leave('verdict');
}

// Holds locks of rows until the returned function is called.
async function hold(text) {
  const [psql, ...more] = config.psql;
  const child = spawn(psql, more, { stdio: ['pipe', 'pipe', 'inherit'] });
  let said = '';

  child.stdout.on('data', (part) => { said += part; });
  child.stdin.write(`BEGIN;\n${text};\n\\echo held\n`);
  await until(() => said.includes('held'), text);
  return () => new Promise((resolve) => {
    child.on('close', resolve);
    child.stdin.end('ROLLBACK;\n\\q\n');
  });
}

async function bulk() {
  const ann = await Person.arrive('ann');
  const { page } = ann;
  const waiting = () => sql(`SELECT count(*) FROM jobq.jobs WHERE job_type = 'archive' AND status = 'pending'`);
  const n = Number(await waiting());

  await ann.go('#/jobs?job_type=archive&payload=%7Bbad', 'this is not JSON');
  ok(await ann.button('Cancel all').isDisabled() && await ann.button('Retry all').isDisabled(), 'no bulk action with a filter that is wrong');
  await ann.go('#/jobs?job_type=archive', 'archive');
  await ann.button('Cancel all').click();
  await ann.dialog.getByText(`Cancel ${n.toLocaleString('en')} jobs that wait`).waitFor();
  ok(true, `a bulk action shows that it is about ${n} jobs`);
  const send = ann.dialog.locator('button[type=submit]');
  ok(await send.isDisabled(), 'and asks for the name of the type');
  await ann.dialog.getByLabel('Type archive').fill('archive');
  // each step waits a second for rows that another session holds
  const release = await hold(`SELECT jobq.cancel_job(id) FROM (SELECT id, row_number() OVER (ORDER BY id DESC) AS place FROM jobq.jobs
    WHERE job_type = 'archive' AND status = 'pending') j WHERE place % 50 = 0`);
  await send.click();
  await page.getByText(new RegExp(`^[1-9][\\d,]* of ${n.toLocaleString('en')} cancelled`)).waitFor();
  ok(true, 'its progress is shown');
  await ann.dialog.getByRole('button', { name: 'Stop' }).click();
  await ann.dialog.getByText('Stopped').waitFor();
  await release();
  await page.waitForTimeout(1500);
  const left = Number(await waiting());
  ok(left > 0 && left < n, 'a stopped one leaves the rest', `${left} of ${n}`);
  await ann.dialog.getByRole('button', { name: 'Close' }).click();
  await ann.leave('bulk');
}

async function windowed() {
  const ann = await Person.arrive('ann');
  const { page } = ann;
  let shown = 0;

  await ann.go('#/jobs?job_type=archive', '100 shown');
  while ((shown = Number((await ann.text('main .under')).match(/([\d,]+) shown/)[1].replace(',', ''))) < 1000) {
    await ann.button('Show older').click();
    await page.waitForFunction((before) => Number(document.querySelector('main .under').innerText.match(/([\d,]+) shown/)[1].replace(',', '')) > before, shown);
  }
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight / 2));
  await page.waitForFunction(() => document.querySelector('main tr.gap')
    && [...document.querySelectorAll('main tr[data-row]')].filter((r) => r.getBoundingClientRect().bottom > 0 && r.getBoundingClientRect().top < innerHeight).length >= 10);
  ok(true, 'the window is filled with rows');
  const { rows, all } = await page.evaluate(() => {
    const drawn = [...document.querySelectorAll('main tr[data-row]')];
    return { rows: drawn.length, all: document.querySelector('main table').getAttribute('aria-rowcount') };
  });
  ok(rows < 200 && all === '1001', `of ${all - 1} rows ${rows} are in the document`);
  await ann.leave('windowed');
}

async function two() {
  const ann = await Person.arrive('ann');
  const ben = await Person.arrive('ben');
  const placed = () => ben.page.evaluate(() => [...document.querySelectorAll('main tr[data-row]')].map((r) => `${r.querySelector('a').href} ${r.getBoundingClientRect().top}`).join('\n'));

  await ben.go('#/jobs?job_type=import', 'import');
  const before = await placed();
  await ann.go('#/jobs?job_type=import', 'import');
  await ann.button('Enqueue').click();
  await ann.dialog.locator('button[type=submit]').click();
  await ben.page.getByRole('button', { name: '1 new' }).waitFor();
  ok(await placed() === before, 'another\'s job is announced; rows do not move', `${before}\n# became\n# ${await placed()}`);
  // a list that takes long to read is read again, too, less often
  await ben.page.route('**/api/v1/jobs?*', async (route) => {
    await new Promise((resolve) => { setTimeout(resolve, 800); });
    await route.continue();
  });
  await ben.button('1 new').click();
  await ben.page.waitForFunction((n) => document.querySelectorAll('main tr[data-row]').length === n, before.split('\n').length + 1);
  ok(true, 'and shown on a click');
  await ann.go('#/jobs?job_type=import', 'import');
  await ann.button('Enqueue').click();
  await ann.dialog.locator('button[type=submit]').click();
  await ben.page.getByRole('button', { name: '1 new' }).waitFor();
  ok(true, 'in a slow list as well');
  await ben.page.unroute('**/api/v1/jobs?*');

  await ben.go('#/', 'import');
  await ann.go('#/', 'import');
  await ben.button('Pause import').click();
  await ben.dialog.locator('button[type=submit]').click();
  await ann.button('Resume import').waitFor();
  ok(true, 'what one pauses, the other sees');
  await ann.button('Resume import').click();
  await ben.button('Pause import').waitFor();
  ok(true, 'what the other resumes, the first sees');
  await ann.leave('two people, one');
  await ben.leave('two people, the other');
}

async function ended() {
  const ann = await Person.arrive('ann');

  await ann.go('#/jobs?job_type=invoice&status=error', 'provider');
  const second = await ann.context.newPage();
  await second.goto(`${config.url}#/types/mail`);
  await second.getByRole('button', { name: 'Pause mail' }).waitFor();
  await ann.button('Enqueue').click();
  await ann.dialog.waitFor();
  // another tab signs out: the cookie is no longer worth anything
  const csrf = (await (await ann.context.request.get(`${config.url}api/v1/session`)).json()).csrf;
  ann.refused = [401];
  const { status } = { status: (await ann.context.request.delete(`${config.url}api/v1/session`, { headers: { 'X-Csrf-Token': csrf, Origin: config.url.slice(0, -1), 'Content-Type': 'application/json' } })).status() };
  ok(status === 200, 'a session is ended in jobq-web', status);
  await ann.page.getByText('The session has ended').waitFor();
  await ann.dialog.waitFor({ state: 'detached' });
  ok(await ann.page.locator('main tr').count() === 0, 'the page asks to sign in, and shows nothing any more');
  await ann.page.fill('#user', 'ann');
  await ann.page.fill('#password', 'p');
  await ann.page.click('button[type=submit]');
  await ann.shown('#/jobs?job_type=invoice&status=error', 'provider');
  ok(true, 'one is then where one was');
  await second.getByRole('button', { name: 'Pause mail' }).click();
  await second.locator('dialog button[type=submit]').click();
  await untilSql(`SELECT paused FROM jobq.job_types WHERE name = 'mail'`);
  ok(true, 'so is another tab, whose buttons have the new session');
  await sql(`SELECT jobq.resume_job_type('mail')`);
  await second.close();
  await ann.button('Sign out').click();
  await ann.page.waitForSelector('#user');
  await ann.page.goBack();
  ok(await ann.page.locator('main tr').count() === 0, 'after signing out, back shows nothing');
  await ann.leave('sessions');
}

export const groups = {
  'verdict': verdict, 'keys': keys, 'Tab': tabulator, 'jobs': jobs, 'levers': levers, 'two people': two, 'sessions': ended, 'windowed': windowed, 'bulk actions': bulk,
};
