// The page in a browser.  GROUP=word runs the groups with that word in their names.
import { browser, group } from './browser.mjs';
import { failed } from './contract.mjs';

for (const part of ['first', 'screens', 'actions', 'manage', 'values', 'texts', 'states']) {
  for (const [name, act] of Object.entries((await import(`./page_${part}.mjs`)).groups)) {
    if (name.includes(process.env.GROUP ?? ''))
      await group(name, act);
  }
}
await browser.close();
process.exit(failed ? 1 : 0);
