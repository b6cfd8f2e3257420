// Takes a picture of a screen of a running jobq-web, as that of the README:
//   JOBQ_NODE_WEB=... node test/web/picture.mjs URL ROLE PASSWORD FILE [FRAGMENT [WIDTH HEIGHT]]
import { createRequire } from 'node:module';

const [url, role, password, path, fragment = '#/', width = 1280, height = 900] = process.argv.slice(2);
const { chromium } = createRequire(`${process.env.JOBQ_NODE_WEB}/`)('playwright-core');
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
const page = await browser.newPage({ viewport: { width: Number(width), height: Number(height) } });

await page.goto(url);
await page.fill('#user', role);
await page.fill('#password', password);
await page.click('button[type=submit]');
await page.waitForSelector('.uplot canvas');
await page.evaluate((f) => { location.hash = f; }, fragment);
await page.waitForTimeout(25000);  // the numbers of now are those of 20 seconds
await page.screenshot({ path, animations: 'disabled' });
await browser.close();
