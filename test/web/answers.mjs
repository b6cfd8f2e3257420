// Checks the answers that the TAP tests of jobq-web had (test/lib/WebTest.pm) by openapi.json.
import fs from 'node:fs';
import path from 'node:path';
import { basic, load, ok } from './contract.mjs';

const { main, user, password, answers } = JSON.parse(process.env.JOBQ_CONTRACT);
const contract = await load(main, basic(user, password));
const operations = contract.operations.map((o) => ({ ...o, at: new RegExp(`^${o.path.replace(/\{\w+\}/g, '[^/]+')}$`) }));
const faults = new Set();
let checked = 0;

for (const file of fs.readdirSync(answers)) {
  for (const line of fs.readFileSync(path.join(answers, file), 'utf8').split('\n').filter(Boolean)) {
    const answer = JSON.parse(line);
    const operation = operations.find((o) => o.method === answer.method && o.at.test(answer.path.split('?')[0]));

    // a browser's page has no schema, and a path below base_path is another one without it
    if (!operation || answer.headers['content-type'].startsWith('text/html') || answer.text.includes('there is no such path'))
      continue;
    checked++;
    const fault = contract.fault(operation, answer);
    if (fault)
      faults.add(`${file}: ${answer.method} ${answer.path.slice(0, 200)}: ${fault}`);
  }
}
ok(checked > 0 && faults.size === 0, 'every answer of the TAP tests is as openapi.json says', `${checked} checked\n# ${[...faults].slice(0, 50).join('\n# ')}`);
process.exit(faults.size === 0 ? 0 : 1);
