// Groups of dead letters, bulk actions on a status, lists beyond a page, forms of settings, what
// others drop, a refused stream.
import { ok } from './contract.mjs';
import { Person, sql, until, untilSql } from './browser.mjs';

const MANY = 205;   // more than a page of the API has

const submit = (person) => person.dialog.locator('button[type=submit]').click();

// As if the tab came back to the front: what is shown is read again.
const renew = (person) => person.page.evaluate(() => { document.dispatchEvent(new Event('visibilitychange')); });

// Makes a dead letter, or a waiting retry, of a pull type for each [error, code].
async function failures(type, list, more = 'retryable => false') {
  for (const [error, code] of list) {
    await sql(`SELECT jobq.enqueue('${type}')`);
    await sql(`SELECT jobq.fail(c.id, c.lease_token, '${error}', error_code => ${code ? `'${code}'` : 'NULL'}, ${more})
      FROM jobq.claim('{${type}}', worker => 'w', wait => '20s') c`);
  }
}

// Opens a bulk action, whose title is this, and does it.
async function bulk(person, button, title, type, done) {
  await button.click();
  await person.dialog.getByText(title, { exact: true }).waitFor();
  await person.dialog.getByLabel(`Type ${type}`).fill(type);
  await submit(person);
  await person.dialog.getByText(done).waitFor();
  await person.dialog.getByRole('button', { name: 'Close' }).click();
}

async function deadLetters() {
  const ann = await Person.arrive('ann');
  const { page } = ann;
  const dead = () => sql(`SELECT string_agg(error_msg, ' | ' ORDER BY error_msg) FROM jobq.dead_letters d JOIN jobq.job_types t ON t.id = d.type_id WHERE t.name = 'convert'`);
  const row = (code, name) => page.locator('main tr[data-row]').filter({ has: page.locator('code', { hasText: new RegExp(`^${code}$`) }) })
    .getByRole('button', { name, exact: true });

  await sql(`SELECT jobq.create_job_type('convert', max_attempts => 1, options => '{"alert": false}')`);
  await failures('convert', [['exited with code 1', 'exit'], ['exited with code 2', 'exit'], ['exited with code 3: disk full', 'exit'], ['exited with code 4', 'other'],
    ['exited with code 5', null], ['6', null]]);
  await ann.go('#/dead', 'disk full');
  ok(await ann.button('Purge all').isDisabled() && await ann.button('Retry all').isDisabled(), 'without a filter nothing can be done to all: the server would refuse it');
  await ann.go('#/dead?job_type=convert', 'disk full');
  await bulk(ann, row('exit', 'Purge: exited with code ?'), 'Purge 2 dead letters', 'convert', 'Done: 2 purged');
  ok(await dead() === '6 | exited with code 3: disk full | exited with code 4 | exited with code 5', 'a purge of a group takes its jobs only', await dead());
  await bulk(ann, row('', 'Purge: ?'), 'Purge 1 dead letters', 'convert', 'Done: 1 purged');
  ok(await dead() === 'exited with code 3: disk full | exited with code 4 | exited with code 5', 'so does that of the pattern ?', await dead());
  await bulk(ann, row('other', 'Retry: exited with code ?'), 'Retry 1 dead letters', 'convert', 'Done: 1 retried');
  ok(await dead() === 'exited with code 3: disk full | exited with code 5' && await sql(`SELECT count(*) FROM jobq.jobs WHERE job_type = 'convert' AND status = 'pending'`) === '1',
    'a retry of a group, too', await dead());

  await ann.go('#/types/convert', 'disk full');
  await page.locator('main tr[data-row]').filter({ hasText: 'disk full' }).focus();
  await page.keyboard.press('Enter');
  await page.locator('main h1').getByText('Dead letters').waitFor();
  await ann.shown('#/dead?job_type=convert&error_code=exit', 'disk full');
  ok(await page.locator('main tr[data-row]').count() === 1, 'an error of a type leads to its dead letters, by code', await ann.text('main table'));
  await bulk(ann, ann.button('Purge all'), 'Purge 1 dead letters', 'convert', 'Done: 1 purged');
  ok(await dead() === 'exited with code 5', 'all of a code are purged', await dead());

  // a retry without an error
  await sql(`SELECT jobq.cancel_jobs('convert'); SELECT jobq.enqueue('convert')`);
  await sql(`SELECT jobq.snooze_job(c.id, c.lease_token, '1 hour') FROM jobq.claim('{convert}', worker => 'w', wait => '20s') c`);
  await ann.go('#/dead?job_type=convert', 'exited with code');
  await ann.go('#/types/convert', 'Top errors');
  await sql(`SELECT jobq.cancel_jobs('convert'), jobq.purge_dead_letters('convert')`);
  await ann.leave('groups of dead letters');
}

async function ofStatus() {
  const ann = await Person.arrive('ann');
  const statuses = () => sql(`SELECT string_agg(status::text, ' ' ORDER BY status, id) FROM jobq.jobs WHERE job_type = 'staged'`);

  await sql(`SELECT jobq.create_job_type('staged', max_attempts => 3)`);
  await failures('staged', [['busy', null]], "retry_after => '1 hour'");
  await sql(`SELECT jobq.enqueue('staged') FROM generate_series(1, 2)`);
  ok(await statuses() === 'pending pending retry', 'jobs wait, one for its retry', await statuses());
  await ann.go('#/jobs?status=retry', 'staged');
  ok(await ann.button('Cancel all').isDisabled(), 'a status alone is no filter of a bulk action');
  await ann.go('#/jobs?job_type=staged&status=retry', 'staged');
  await bulk(ann, ann.button('Cancel all'), 'Cancel 1 retry jobs', 'staged', 'Done: 1 cancelled');
  ok(await statuses() === 'pending pending cancelled', '"Cancel all" is about the status of the list', await statuses());
  await sql(`SELECT count(*) FROM jobq.claim('{staged}', worker => 'w', wait => '20s')`);
  await ann.go('#/jobs?job_type=staged&status=running', 'staged');
  await bulk(ann, ann.button('Cancel all'), 'Cancel 1 running jobs', 'staged', 'Done: 1 cancelled');
  ok((await statuses()).startsWith('pending ') && await sql(`SELECT count(*) FROM jobq.queue q JOIN jobq.job_types t ON t.id = q.type_id
    WHERE t.name = 'staged' AND q.status = 'running' AND NOT q.cancel_requested`) === '0', 'so it is of running ones', await statuses());
  await sql(`SELECT jobq.cancel_jobs('staged', include_running => true)`);
  await sql(`SELECT jobq.enqueue('staged') FROM generate_series(1, 2)`);
  const [older, newer] = (await sql(`SELECT id || ' ' || lease_token FROM jobq.claim('{staged}', 2, worker => 'w', wait => '20s') ORDER BY id`)).split('\n').map((row) => row.split(' '));
  const fail = ([id, token]) => sql(`SELECT jobq.fail('${id}', '${token}', 'no', retryable => false)`);
  await fail(newer);
  await ann.go('#/jobs?job_type=staged&status=error', 'staged');
  await fail(older);
  await ann.button('1 new').click();
  await until(() => ann.page.locator('main tr[data-row]').count().then((n) => n === 2), 'both are there');
  ok(true, 'an older job that comes to match is announced');
  await ann.leave('bulk of a status');
}

// More tenants, limits, signals, rules and types than a page has.
async function many() {
  const ann = await Person.arrive('ann');
  const { page } = ann;
  const rows = (n) => page.waitForFunction((count) => Number(document.querySelector('main table').getAttribute('aria-rowcount')) === count + 1, n);

  await sql(`SELECT jobq.set_tenant_quota('many-' || i, max_live => i) FROM generate_series(1, ${MANY}) i; SELECT jobq.set_tenant_quota('zeta', max_live => 77, max_bytes => 9223372036854775807, max_running => 3);
    SELECT jobq.set_limit('many-' || i, max_concurrent => 1) FROM generate_series(1, ${MANY}) i;
    SELECT jobq.set_signal('zz-first', false); SELECT jobq.set_signal('many-' || i, false) FROM generate_series(1, ${MANY}) i;
    SELECT jobq.set_pressure_rule(NULL, 'many-' || i, priority_adj => 1) FROM generate_series(1, ${MANY}) i; SELECT jobq.set_pressure_rule(NULL, 'zz-first', priority_adj => 1);
    SELECT jobq.create_job_type('many_' || i, options => '{"alert": false}') FROM generate_series(1, ${MANY}) i; SELECT jobq.create_job_type('needle')`);
  try {
    await ann.go('#/tenants/zeta', '77');
    await ann.button('Set').click();
    ok(await ann.dialog.getByLabel('Live jobs').inputValue() === '77', 'a tenant beyond the first page has its quota', await ann.dialog.getByLabel('Live jobs').inputValue());
    await ann.dialog.getByLabel('Running jobs').fill('4');
    await submit(ann);
    await untilSql(`SELECT (max_live, max_bytes, max_running) = (77, 9223372036854775807, 4) FROM jobq.tenant_quotas WHERE tenant = 'zeta'`);
    ok(true, 'a change of one maximum keeps the others');

    await ann.go('#/limits', 'many-1');
    await rows(Number(await sql('SELECT count(*) FROM jobq.limits')));
    ok(true, 'all limits are there');
    await ann.go('#/rules', 'zz-first');
    await ann.button('Drop zz-first').click();
    await ann.dialog.getByText('Its rule goes with it').waitFor();
    await ann.dialog.getByLabel('Type zz-first').fill('zz-first');
    await submit(ann);
    await untilSql(`SELECT NOT EXISTS (SELECT FROM jobq.signals WHERE name = 'zz-first')`);
    ok(true, 'a signal goes with a rule that is beyond the first page, on a screen of two long lists');
    await ann.go('#/types?find=NEEDLE', 'needle');
    ok(await page.locator('main tr[data-row]').count() === 1, 'a type is found by its name among all', await ann.text('main table'));
  } finally {
    await sql(`SELECT jobq.set_tenant_quota(tenant) FROM jobq.tenant_quotas WHERE tenant ~ '^many-|^zeta'; SELECT jobq.drop_limit(name) FROM jobq.limits WHERE name ~ '^many-';
      SELECT jobq.drop_signal(name, force => true) FROM jobq.signals WHERE name ~ '^many-'; SELECT jobq.drop_job_type(name) FROM jobq.job_types WHERE name ~ '^many_|^needle' AND dropped_at IS NULL`);
  }
  await ann.leave('long lists');
}

async function dropped() {
  const ann = await Person.arrive('ann');
  const { page } = ann;

  await sql(`SELECT jobq.create_job_type('brief'), jobq.schedule('brief tick', '@yearly', 'brief'), jobq.set_tenant_quota('brief-tenant', max_live => 1)`);
  for (const [fragment, name, drop] of [['#/schedules', 'brief tick', `jobq.unschedule('brief tick')`], ['#/types', 'brief', `jobq.drop_job_type('brief')`],
    ['#/tenants', 'brief-tenant', `jobq.set_tenant_quota('brief-tenant')`]]) {
    await ann.go(fragment, name);
    const n = await page.locator('main tr[data-row]').count();
    ok(await page.locator('main tr.left').count() === 0, `${fragment}: no row is faint`);
    await sql(`SELECT ${drop}`);
    await renew(ann);
    await page.locator('main tr.left').filter({ hasText: name }).waitFor();
    ok(await page.locator('main tr.left').count() === 1 && await page.locator('main tr[data-row]').count() === n && /faint rows/.test(await ann.text()),
      `${fragment}: what another person drops turns faint, and stays in its place`);
  }
  await ann.leave('what others drop');
}

async function forms() {
  const ann = await Person.arrive('ann');
  const { page } = ann;
  const { dialog } = ann;

  await ann.go('#/rules', 'live_call');
  await ann.button('Change the rule of transcode for backup').click();
  await dialog.getByLabel('Added to the priority').fill('-7');
  await submit(ann);
  await untilSql(`SELECT (block, priority_adj) = (true, -7) FROM jobq.pressure_rules WHERE signal = 'backup'`);
  await page.getByText('starts no job, priority −7').waitFor();
  ok(true, 'a rule is changed; what was not changed stays');
  await sql(`SELECT jobq.set_pressure_rule('transcode', 'backup', block => true)`);

  await ann.go('#/limits', 'gpu');
  await ann.button('Set gpu').click();
  await dialog.getByLabel('Jobs at once').fill('3');
  await submit(ann);
  await untilSql(`SELECT max_concurrent = 3 FROM jobq.limits WHERE name = 'gpu'`);
  await sql(`SELECT jobq.set_limit('gpu', max_concurrent => 2)`);
  ok(true, 'a limit is changed');

  const scheduled = () => sql(`SELECT count(*) FROM jobq.jobs WHERE metadata->>'schedule' = 'nightly' AND tenant = 'acme'`);
  const before = Number(await scheduled());
  await ann.go('#/schedules/nightly?tenant=acme', 'Definition');
  await ann.button('Backfill').click();
  await dialog.getByLabel('From').fill('2026-03-01 12:00');
  await dialog.getByLabel('To').fill('2026-03-04 12:00');
  await submit(ann);
  await dialog.getByText('Enqueue 3 jobs').waitFor();
  ok(/2 Mar 2026/.test(await dialog.innerText()) && /4 Mar 2026/.test(await dialog.innerText()), 'a backfill shows its ticks first', await dialog.innerText());
  await submit(ann);
  await until(async () => Number(await scheduled()) === before + 3, 'the jobs of a backfill');
  ok(true, 'a backfill enqueues the jobs of its ticks');
  await sql(`SET ROLE ann; SELECT jobq.schedule('halves', 'every 1 hour', 'archive', starts_at => '2026-03-01 10:30+00', options => '{"priority": 5, "max_attempts": 2}')`);
  await ann.go('#/schedules/halves', 'Definition');
  await ann.button('Backfill').click();
  await dialog.getByLabel('From').fill('2026-03-01 10:30');
  await dialog.getByLabel('To').fill('2026-03-01 11:30');
  await submit(ann);
  await dialog.getByText('Enqueue 2 jobs').waitFor();
  ok(/10:30:00/.test(await dialog.innerText()) && /11:30:00/.test(await dialog.innerText()), 'those of an interval count from starts_at', await dialog.innerText());
  await page.keyboard.press('Escape');
  await ann.go('#/schedules/halves?edit=1', 'Its ticks');
  await page.getByLabel('Options').fill('{"priority": 5}');
  await ann.button('Save').click();
  await untilSql(`SELECT options = '{"priority": 5}' FROM jobq.schedules WHERE name = 'halves'`);
  ok(true, 'an option that is taken out of a schedule is gone');
  await sql(`SELECT jobq.unschedule('halves')`);
  await ann.go('#/schedules?new=1', 'Cron');
  await page.getByLabel('Cron').fill('after 10 min');
  await page.getByText('It follows the end of its last job').waitFor();
  ok(true, 'the ticks of "after" have no list');

  await ann.go('#/types/archive?edit=1', 'Review');
  ok(await ann.button('Add').isDisabled(), 'no option is chosen');
  await page.getByLabel('Add an option').selectOption('max_depth');
  await ann.button('Add').click();
  await page.locator('input:focus').waitFor();
  ok(await page.getByLabel('max_depth').evaluate((field) => field === document.activeElement), 'an option that is added has the focus');

  await sql(`SELECT jobq.schedule('leaving', '@yearly', 'archive', tenant => 'leaver'), jobq.enqueue('archive', tenant => 'leaver'), jobq.enqueue('archive', tenant => 'leaver/eu')`);
  await ann.go('#/tenants/leaver', 'Quota');
  await ann.button('Delete all data').click();
  ok(/leaver\/eu, stay/.test(await dialog.innerText()), 'the deletion of a tenant says what stays', await dialog.innerText());
  await dialog.getByLabel('Type leaver').fill('leaver');
  await submit(ann);
  await untilSql(`SELECT NOT EXISTS (SELECT FROM jobq.jobs WHERE tenant = 'leaver') AND NOT EXISTS (SELECT FROM jobq.schedules WHERE tenant = 'leaver')`);
  ok(await sql(`SELECT count(*) FROM jobq.jobs WHERE tenant = 'leaver/eu'`) === '1', 'its jobs and schedules are gone, those of the tenant below it stay');
  await sql(`SELECT jobq.cancel_jobs(tenant => 'leaver/eu')`);
  await ann.leave('forms');
}

// A refused stream is tried again a minute later, not at once and not never.
// The audit of grants; the marks of the overview's plots beside many calls for single jobs.
async function log() {
  const ann = await Person.arrive('ann');
  const { page } = ann;

  await sql(`CREATE ROLE marked; SELECT jobq.grant_access('marked', 'read'); SELECT jobq.grant_access('marked', 'enqueue')`);
  try {
    await ann.go('#/audit?action=grant_access', 'marked');
    const row = page.locator('main tr[data-row]').filter({ hasText: 'marked' }).first();
    const more = row.locator('summary').first();
    if (await more.count())
      await more.click();
    ok(/enqueue/.test(await row.textContent()), 'the audit shows what was granted', await row.textContent());

    await sql(`SELECT jobq.stop_all('marks'); SELECT jobq.start_all();
      SELECT count(jobq.enqueue('archive', tenant => 'marks')) FROM generate_series(1, 120);
      SELECT count(jobq.cancel_job(id)) FROM jobq.jobs WHERE tenant = 'marks'`);
    await ann.go('#/', 'Job types');
    await page.locator('.plot summary').first().click();
    await page.locator('.plot-table li').getByText('stop_all').first().waitFor();
    ok(true, 'a stop is a mark beside the cancels of 120 jobs');

    await sql(`SELECT jobq.pause_job_type('import', duration => '1ms')`);
    await ann.go('#/types/import', 'import');
    await ann.button('Pause import').waitFor();
    await ann.go('#/types?state=active', 'import');
    ok(true, 'a pause that has ended is none');
  } finally {
    await sql(`SELECT jobq.resume_job_type('import'), jobq.revoke_access('marked', 'read'), jobq.revoke_access('marked', 'enqueue'); DROP ROLE marked`);
  }
  await ann.leave('marks');
}

async function stream() {
  const ann = await Person.arrive(null, { refused: [401, 503] });
  const { page } = ann;
  let [streams, overviews] = [0, 0];

  page.on('request', (request) => {
    streams += Number(request.url().endsWith('/stream'));
    overviews += Number(request.url().endsWith('/overview'));
  });
  await ann.context.addInitScript(() => {
    const { now } = Date;
    let more = 0;
    Date.now = () => now() + more;
    window.shift = (ms) => { more += ms; };
  });
  await page.route('**/api/v1/stream', (route) => route.fulfill({ status: 503, contentType: 'application/problem+json', body: '{"status": 503, "title": "Service unavailable"}' }));
  await ann.signIn('ann');
  await until(() => streams === 1, 'a stream is asked for');
  const before = overviews;
  await until(() => overviews >= before + 3, 'the overview is asked for without it');
  ok(streams === 1, 'a refused stream is not asked for again at once', streams);
  await page.unroute('**/api/v1/stream');
  const answer = page.waitForResponse((response) => response.url().endsWith('/stream'));
  await page.evaluate(() => window.shift(61000));
  ok((await answer).status() === 200, 'but a minute later');
  await ann.leave('a refused stream');
}

export const groups = {
  'groups of dead letters': deadLetters, 'bulk of a status': ofStatus, 'long lists': many, 'what others drop': dropped, 'forms': forms, 'audit and marks': log,
  'a refused stream': stream,
};
