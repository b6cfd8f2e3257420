// What jobs carry: numbers that JavaScript has not, copies that work, downloads, long values.
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { ok } from './contract.mjs';
import { Person, sql, until, untilSql } from './browser.mjs';

const run = promisify(execFile);
const EXACT = '{"id": 9007199254740993, "list": [-18446744073709551617, 1.5], "price": 12345678901234567.89}';
const NUMBERS = ['9007199254740993', '-18446744073709551617', '12345678901234567.89'];

const payloadOf = (id) => sql(`SELECT payload FROM jobq.jobs WHERE id = '${id}'`);

const type = () => sql(`SELECT jobq.create_job_type('value') WHERE NOT EXISTS (SELECT FROM jobq.job_types WHERE name = 'value')`);

async function arrive() {
  await type();
  const ann = await Person.arrive('ann', { permissions: ['clipboard-read', 'clipboard-write'] });

  ann.copied = () => ann.page.evaluate(() => navigator.clipboard.readText());
  ann.copy = async (name) => {
    await ann.page.evaluate(() => navigator.clipboard.writeText(''));
    await ann.button(name).click();
    return until(ann.copied, `${name} is in the clipboard`);
  };
  return ann;
}

async function numbers() {
  const ann = await arrive();
  const { page } = ann;
  const shown = (text) => NUMBERS.filter((n) => !text.includes(n));
  const id = await sql(`SELECT jobq.enqueue('value', '${EXACT}', tenant => 'exact', metadata => '{"trace": 9007199254740995}')`);
  const other = await sql(`SELECT jobq.enqueue('value', '{"id": 9007199254740992}', tenant => 'exact')`);

  await ann.go(`#/jobs?job_type=value&payload=${encodeURIComponent('{"id": 9007199254740993}')}`, '9007199254740993');
  const rows = await page.evaluate(() => [...document.querySelectorAll('main tr[data-row] td a')].map((a) => a.getAttribute('href').slice('#/jobs/'.length)));
  ok(rows.includes(id) && !rows.includes(other), 'a filter by a number beyond 2^53 finds the job with it, not its neighbour', rows.join(' '));
  await ann.go(`#/jobs/${id}`, 'Payload');
  ok(shown(await ann.text()).length === 0 && (await ann.text()).includes('9007199254740995'), 'a job shows numbers with all their digits', shown(await ann.text()).join(' '));

  const copied = await sql((await ann.copy('Copy as SQL')).replace(/;$/, ''));
  ok(await payloadOf(copied) === EXACT && await sql(`SELECT metadata, tenant FROM jobq.jobs WHERE id = '${copied}'`) === '{"trace": 9007199254740995}|exact',
    'Copy as SQL enqueues the same job', await payloadOf(copied));
  const curl = await ann.copy('as curl');
  const { stdout } = await run('sh', ['-c', curl.replace("-u 'ann'", "-s -u 'ann:p'")]);
  const sent = JSON.parse(stdout).id;
  ok(await payloadOf(sent) === EXACT, 'so does the curl command', `${curl}\n# ${stdout}`);

  await ann.button('Change').click();
  const field = ann.dialog.getByLabel('Payload');
  ok(shown(await field.inputValue()).length === 0, 'the form of a change has them', await field.inputValue());
  await field.fill((await field.inputValue()).replace('1.5', '9007199254740997'));
  await ann.dialog.locator('button[type=submit]').click();
  await untilSql(`SELECT payload->'list'->>1 = '9007199254740997' FROM jobq.jobs WHERE id = '${id}'`);
  ok(await payloadOf(id) === EXACT.replace('1.5', '9007199254740997'), 'a change keeps them', await payloadOf(id));

  await ann.button('Change').click();
  await field.fill(String.raw`{"id": "\u000012"}`);
  await ann.expecting([400], async () => {
    await ann.dialog.locator('button[type=submit]').click();
    await ann.dialog.getByText(/Unicode|u0000/).first().waitFor();
  });
  ok((await payloadOf(id)).includes('9007199254740997'), 'a text with a zero byte is no number: the server refuses it', await payloadOf(id));
  await page.keyboard.press('Escape');
  await ann.dialog.waitFor({ state: 'detached' });

  await sql(`SELECT jobq.cancel_job('${id}')`);
  await ann.button('Run again as new').click();
  await ann.dialog.getByLabel('Payload').fill(EXACT.replace('1.5', '2'));
  await ann.dialog.locator('button[type=submit]').click();
  await page.waitForFunction((old) => /^#\/jobs\/[0-9a-f-]{36}$/.test(location.hash) && !location.hash.includes(old), id);
  const again = (await page.evaluate(() => location.hash)).slice('#/jobs/'.length);
  ok(await payloadOf(again) === EXACT.replace('1.5', '2'), 'a job is run again with another payload', await payloadOf(again));
  await sql(`SELECT jobq.cancel_jobs(tenant => 'exact')`);
  await ann.leave('numbers');
}

async function long() {
  const ann = await arrive();
  const { page } = ann;
  const id = await sql(`SELECT jobq.enqueue('value', jsonb_build_object('text', repeat('word ', 20000), 'end', 'the end'), tenant => 'exact')`);
  const length = () => page.evaluate(() => document.querySelector('main pre[aria-label=Payload]').textContent.length);
  const whole = JSON.stringify(JSON.parse(await payloadOf(id)), null, 2);

  await ann.go(`#/jobs/${id}`, 'Payload');
  ok(await length() < 5000, 'a payload over 64 kB is folded', await length());
  const [download] = await Promise.all([page.waitForEvent('download'), ann.button('Download Payload').click()]);
  const text = await readFile(await download.path(), 'utf8');
  ok(text === whole && download.suggestedFilename() === `${id}-payload.txt`, 'a download has all of it, as text', `${download.suggestedFilename()}: ${text.length} of ${whole.length}`);
  ok(await ann.copy('Copy Payload') === whole, 'a copy has all of it');
  await ann.button('Show all').click();
  await until(async () => await length() === whole.length, 'all of it is shown');
  ok(true, 'it is unfolded on a click');
  await sql(`SELECT jobq.cancel_job('${id}')`);
  await ann.leave('long values');
}

// Times that JavaScript does not read, and spans beyond its calendar.
async function times() {
  const ann = await Person.arrive('ann');

  await type();
  await sql(`SELECT jobq.enqueue('value', '{"far": true}', tenant => 'exact', scheduled_for => '20000-01-01')`);
  await ann.go('#/jobs?job_type=value&tenant=exact&status=pending', 'value');
  ok(/in \d+ y/.test(await ann.text('main tbody')), 'a time after the year 9999 is shown', await ann.text('main tbody'));
  await ann.page.evaluate(() => { location.hash = '#/jobs?since=99999999999 d'; });
  await ann.page.locator('.wrong').getByText('a time (UTC) or a span').waitFor();
  await ann.page.evaluate(() => { location.hash = '#/jobs?until=5'; });
  await ann.page.locator('.wrong').getByText('a time (UTC) or a span').waitFor();
  ok(true, 'so are a span beyond the calendar and a number');
  await sql(`SELECT jobq.cancel_jobs(tenant => 'exact')`);
  await ann.leave('times');
}

export const groups = { 'exact numbers': numbers, 'long values': long, 'far times': times };
