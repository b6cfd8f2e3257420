// One browser, people in it, and what must never happen on a page.
import { execFile, spawn } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { promisify } from 'node:util';
import { ok } from './contract.mjs';

const require = createRequire(process.env.JOBQ_NODE_WEB + '/');
const { chromium } = require('playwright-core');
const axeSource = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
export const COLOURS = ['color-contrast', 'link-in-text-block'];
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

export const config = JSON.parse(process.env.JOBQ_CONTRACT);
// as the waits of other tests, which are for seconds
export const TIMEOUT_MS = Number(process.env.PG_TEST_TIMEOUT_DEFAULT || 180) * 1000 / 3;
mkdirSync(`${config.pictures}/docs`, { recursive: true });

export const browser = await chromium.launch({ executablePath: config.chromium, args: ['--no-sandbox', '--disable-gpu'] });

const run = promisify(execFile);
const [psql, ...psqlArguments] = config.psql;

export async function sql(text) {
  const running = run(psql, [...psqlArguments, '-f', '-'], { maxBuffer: 1 << 26 });

  running.child.stdin.end(text);
  return (await running).stdout.trimEnd();
}

// Makes PostgreSQL start or stop.
export async function postgres(...what) {
  const [program, ...more] = config.pg_ctl;
  // the server inherits standard output: a pipe would stay open
  const child = spawn(program, [...more, ...what], { stdio: 'ignore' });
  const status = await new Promise((resolve) => { child.on('close', resolve); });
  if (status !== 0)
    throw new Error(`pg_ctl ${what.join(' ')}: ${status}`);
}

export async function until(condition, what, timeout = TIMEOUT_MS) {
  const end = Date.now() + timeout;
  let last;

  while (!(last = await condition())) {
    if (Date.now() > end)
      throw new Error(`waited in vain: ${what}`);
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  return last;
}

export const untilSql = (text) => until(async () => (await sql(text)) === 't', text);

// A person with a page of an own session.  What goes wrong on the page is in trouble; refused has
// the statuses that are expected of the server.
export class Person {
  static async arrive(role, { refused = [], colorScheme = 'light', ...options } = {}) {
    const person = new Person();

    person.scheme = colorScheme;
    person.trouble = [];
    person.refused = refused;
    person.context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme, ...options });
    person.context.setDefaultTimeout(TIMEOUT_MS);
    await person.context.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (event) => {
        console.error(`CSP ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
      });
    });
    person.page = await person.context.newPage();
    person.watch();
    if (role)
      await person.signIn(role);
    return person;
  }

  watch() {
    const { page } = this;
    const note = (text) => this.trouble.push(`${text} at ${page.url().replace(config.url, '')}`);

    page.on('console', (message) => {
      // the browser's own note of a refused request: see response
      if (message.type() === 'error' && !/^Failed to load resource/.test(message.text()))
        note(`console: ${message.text()}`);
    });
    page.on('pageerror', (error) => note(`error: ${error.stack}`));
    page.on('dialog', (dialog) => {
      note(`dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on('request', (request) => {
      if (!request.url().startsWith(config.url) && !/^(data|blob):/.test(request.url()))
        note(`request to ${request.url()}`);
    });
    page.on('requestfailed', (request) => {
      // a screen that is left gives up its requests
      if (request.failure().errorText !== 'net::ERR_ABORTED' && !this.refused.includes('failed'))
        note(`failed request: ${request.url()} ${request.failure().errorText}`);
    });
    page.on('response', (response) => {
      if (response.status() >= 400 && !this.refused.includes(response.status()))
        note(`status ${response.status()}: ${response.request().method()} ${response.url()}`);
    });
  }

  // Runs act with further statuses that are expected.
  async expecting(statuses, act) {
    const before = this.refused;

    this.refused = [...before, ...statuses];
    try {
      return await act();
    } finally {
      this.refused = before;
    }
  }

  async signIn(role) {
    await this.expecting([401], async () => {
      await this.page.goto(config.url);
      await this.page.fill('#user', role);
      await this.page.fill('#password', 'p');
      await this.page.click('button[type=submit]');
      await this.page.waitForSelector('main h1:has-text("Overview")');
    });
  }

  // Goes to a fragment; the screen is there when nothing in it loads any more and text is seen.
  async go(fragment, text) {
    await this.page.evaluate((f) => {
      // another path is another screen, with another heading
      if (f.split('?')[0] !== (location.hash || '#/').split('?')[0])
        document.querySelector('main h1')?.setAttribute('data-old', '');
      location.hash = f;
    }, fragment);
    await this.shown(fragment, text);
  }

  shown(fragment, text) {
    return this.page.waitForFunction(([f, t]) => decodeURIComponent(location.hash) === decodeURIComponent(f) && document.querySelector('main h1:not([data-old])')
      && !document.querySelector('main .loading') && document.querySelector('main').innerText.includes(t), [fragment, text], { polling: 30 });
  }

  text(selector = 'main') {
    return this.page.evaluate((s) => document.querySelector(s)?.innerText ?? '', selector);
  }

  button(name) {
    return this.page.getByRole('button', { name }).locator('visible=true').first();
  }

  get dialog() {
    return this.page.locator('dialog[open]');
  }

  // What axe finds by all rules, or by these: "rule: elements".
  async axe(rules = RULES) {
    const { page } = this;

    if (!await page.evaluate(() => typeof window.axe === 'object'))
      await page.evaluate(axeSource);
    return page.evaluate(async (only) => {
      await Promise.allSettled(document.getAnimations().map((animation) => animation.finished));
      const { violations } = await window.axe.run(document, { runOnly: only, resultTypes: ['violations'] });
      return violations.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target.join(' ')} (${[...n.any, ...n.all, ...n.none][0]?.message ?? ''})`).join('; ')}`);
    }, rules);
  }

  // What axe finds, and whether the page is too wide, in a window of this width.
  async flaws(width, rules) {
    await this.page.setViewportSize({ width, height: 900 });
    const findings = (await this.axe(rules)).map((text) => `${width} px: ${text}`);
    const [inside, wide] = await this.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);

    if (inside > wide)
      findings.push(`the page scrolls sideways: ${inside} of ${wide} px`);
    return findings;
  }

  // The flaws of a wide and of a narrow window are none, nor are those of the other scheme, where
  // only colours differ.
  async sound(what) {
    const findings = [...await this.flaws(320), ...await this.flaws(1280)];
    const other = this.scheme === 'dark' ? 'light' : 'dark';

    await this.page.emulateMedia({ colorScheme: other });
    findings.push(...(await this.axe(COLOURS)).map((text) => `${other}: ${text}`));
    await this.page.emulateMedia({ colorScheme: this.scheme });
    ok(findings.length === 0, `${what}: axe finds nothing, light and dark, nothing is too wide`, findings.join('\n# '));
  }

  picture(name, options = {}) {
    return this.page.screenshot({ path: `${config.pictures}/${name}.png`, animations: 'disabled', ...options });
  }

  // Ends the visit: nothing of trouble has happened.
  async leave(what) {
    ok(this.trouble.length === 0, `${what}: no error, violation, failed or foreign request`, [...new Set(this.trouble)].slice(0, 12).join('\n# '));
    await this.context.close();
  }
}

let failures = 0;

// A group of tests; what it throws is a failed test, with a picture of each page.
export async function group(name, act) {
  const began = Date.now();

  try {
    await act();
  } catch (error) {
    for (const context of browser.contexts())
      for (const page of context.pages())
        await page.screenshot({ path: `${config.pictures}/failed-${failures++}.png` }).catch(() => {});
    ok(false, `${name} runs to its end`, String(error.stack).split('\n').slice(0, 12).join('\n# '));
  }
  console.log(`# ${name}: ${((Date.now() - began) / 1000).toFixed(1)} s`);
}
