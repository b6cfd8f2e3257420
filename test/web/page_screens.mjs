// Every screen in light and dark, wide and narrow, at 200 % in forced colours: axe, widths.
import { copyFileSync } from 'node:fs';
import { ok } from './contract.mjs';
import { COLOURS, config, Person, sql } from './browser.mjs';

const STATUSES = ['pending', 'blocked', 'retry', 'running', 'completed', 'skipped', 'cancelled', 'error'];
const WIDTHS = [1280, 320];
// pictures that docs/page.md shows
const DOCS = { 'overview-light-1280': 'overview', 'job-pending-light-1280': 'job', 'run-failed-light-1280': 'run', 'jobs-dark-320': 'narrow' };

// A screen for each status needs a job in each.
async function makeStatuses() {
  await sql(`SELECT jobq.complete(c.id, c.lease_token, '{"rows": 120}') FROM jobq.claim('{import}', worker => 'worker-3') c`);
  await sql(`SELECT jobq.skip_job(c.id, c.lease_token, 'nothing to do') FROM jobq.claim('{archive}', worker => 'worker-3') c`);
  await sql(`SELECT jobq.cancel_job(id, 'no longer wanted') FROM jobq.jobs WHERE job_type = 'archive' AND status = 'pending' ORDER BY id LIMIT 1`);
}
let made;

export async function screens() {
  await (made ??= makeStatuses());
  const one = async (text) => (await sql(text)).split('\n')[0];
  const jobs = await Promise.all(STATUSES.map(async (status) => [`job-${status}`,
    `#/jobs/${await one(`SELECT id FROM jobq.jobs WHERE status = '${status}' ORDER BY workflow_id IS NOT NULL, id DESC LIMIT 1`)}`, status]));
  const run = (status, ask) => one(`SELECT id FROM jobq.jobs WHERE job_type = 'publish' AND status = '${status}' AND payload->>'ask' = '${ask}' ORDER BY id LIMIT 1`);

  return [
    ['overview', '#/', 'transcode'], ['jobs', '#/jobs', 'pending'], ['jobs-filtered', '#/jobs?status=error&job_type=invoice&tenant=acme', 'provider'], ...jobs,
    ['dead', '#/dead', 'provider answered'], ['types', '#/types', 'transcode'], ['type', '#/types/transcode', 'gated'],
    ['type-change', '#/types/transcode?edit=1', 'Review'], ['type-new', '#/types?new=1', 'Create'], ['limits', '#/limits', 'gpu'], ['rules', '#/rules', 'live_call'],
    ['schedules', '#/schedules', 'daily report'], ['schedule', '#/schedules/daily%20report', 'Europe/Berlin'], ['schedule-new', '#/schedules?new=1', 'New schedule'],
    ['workflows', '#/workflows', 'publish'], ['workflow', '#/workflows/publish', 'approval'], ['runs', '#/runs', 'publish'],
    ['run-waiting', `#/runs/${await run('running', true)}`, 'approval'], ['run-failed', `#/runs/${await run('error', false)}?step=upload`, 'read-only'],
    ['tenants', '#/tenants', 'acme'], ['tenant', '#/tenants/acme', 'Quota'], ['alerts', '#/alerts', 'invoice'], ['audit', '#/audit', 'create_job_type'],
    ['events', '#/events', 'archive'], ['not-found', '#/nothing', 'Not found'],
  ];
}

// Looks at what is shown in both widths.  Only colours differ in the dark.
async function look(person, name, scheme) {
  const findings = [];

  for (const width of WIDTHS) {
    findings.push(...await person.flaws(width, scheme === 'dark' ? COLOURS : undefined));
    const picture = `${name}-${scheme}-${width}`;
    await person.picture(picture);
    if (DOCS[picture])
      copyFileSync(`${config.pictures}/${picture}.png`, `${config.pictures}/docs/${DOCS[picture]}.png`);
  }
  ok(findings.length === 0, `${name}, ${scheme}: axe finds nothing, nothing is too wide`, findings.join('\n# '));
}

async function visit(role, scheme) {
  const person = await Person.arrive(null, { colorScheme: scheme, refused: [401] });
  const list = await screens();

  await person.page.goto(config.url);
  await person.page.waitForSelector('#user');
  await look(person, 'sign-in', scheme);
  await person.signIn(role);
  person.refused = [];
  for (const [name, fragment, text] of list) {
    await person.page.setViewportSize({ width: 1280, height: 900 });
    await person.go(fragment, text);
    await look(person, name, scheme);
  }
  await person.leave(`screens, ${scheme}`);
}

// What says something by its colour alone, or by being there, has an edge or a colour that forced
// colours leave; what can be used is within the window.
function unseen() {
  const of = (e, name) => getComputedStyle(e)[name];
  const canvas = of(document.body, 'backgroundColor');
  const marks = '.badge, .bar, .bar .fill, .span, .box, .swatch, .line .tick, .line .band, .ribbon .run, .ribbon .tick, .ribbon .present, .knob, .track, .verdict, .note, .trouble, .panel, button:not(.sort):not(.quiet), .button, .chips a, input, select, textarea';
  const faint = [...document.querySelectorAll('#app *')].filter((e) => e.matches(marks) && e.checkVisibility({ visibilityProperty: true }) && e.getBoundingClientRect().width > 0)
    .filter((e) => of(e, 'backgroundColor') === canvas && (parseFloat(of(e, 'borderLeftWidth')) === 0 || [canvas, 'rgba(0, 0, 0, 0)'].includes(of(e, 'borderLeftColor')))
      && (parseFloat(of(e, 'outlineWidth')) === 0 || of(e, 'outlineStyle') === 'none'));
  const chosen = [...document.querySelectorAll('[aria-current=true], [aria-current=page], [aria-pressed=true], tr.selected')].filter((e) => e.tagName !== 'TR' && !e.closest('svg')
    && e.checkVisibility() && of(e, 'outlineStyle') === 'none');
  const outside = [...document.querySelectorAll('#app button, #app .button, #app input, #app select, #app a[href]')].filter((e) => e.checkVisibility({ visibilityProperty: true })
    && !e.closest('.scroll, .canvas, .hidden, .skip') && !e.matches('.skip, .hidden')).filter((e) => e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1);
  const name = (e) => `${e.tagName} ${e.className.baseVal ?? e.className} ${(e.getAttribute('aria-label') ?? e.textContent).trim().slice(0, 30)}`;
  return [...new Set([...faint.map((e) => `not seen: ${name(e)}`), ...chosen.map((e) => `not seen to be chosen: ${name(e)}`), ...outside.map((e) => `outside of the window: ${name(e)}`)])].slice(0, 12);
}

// A window of 1280 px at 200 % has room for 640.
async function zoomed() {
  const ann = await Person.arrive('ann', { viewport: { width: 640, height: 450 }, deviceScaleFactor: 2, forcedColors: 'active' });
  const { page } = ann;

  for (const [name, fragment, text] of await screens()) {
    await ann.go(fragment, text);
    const findings = [...await ann.axe(), ...await page.evaluate(unseen)];
    const [inside, wide] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    if (inside > wide)
      findings.push(`the page scrolls sideways: ${inside} of ${wide} px`);
    ok(findings.length === 0, `${name}, 200 %, forced colours: all is seen, nothing is too wide`, findings.join('\n# '));
    await ann.picture(`${name}-zoomed`);
  }
  await ann.go('#/jobs', 'pending');
  await ann.button('Enqueue').click();
  await ann.dialog.waitFor();
  const box = await ann.dialog.boundingBox();
  ok(box.x >= 0 && box.y >= 0 && box.x + box.width <= 640 && box.y + box.height <= 450, 'a dialog is within the window', JSON.stringify(box));
  await ann.dialog.locator('button[type=submit]').scrollIntoViewIfNeeded();
  await ann.picture('dialog-zoomed');
  await ann.dialog.locator('button[type=submit]').click({ trial: true });
  await ann.leave('200 %');
}

export const groups = {
  'screens': async () => {
    await Promise.all([visit('ann', 'light'), visit('ben', 'dark')]);
    await zoomed();
  },
};
