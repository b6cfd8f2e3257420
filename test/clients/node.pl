# The Node client without a server: errors that a later try may not meet, connection options,
# enqueue's options, the package and its types.

use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::Bin/../..";

my ($out, $err) = run_command([ 'node', '--input-type=module', '-e', <<"END" ]);
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { Socket, createServer } from 'node:net';
import pg from '$top/node_modules/pg/lib/index.js';
import { Connection, Listener, isTransient, clientOptions, hostsOf } from '$top/clients/node/connection.mjs';
import { Permanent, Retry, Snooze, Worker, enqueue } from '$top/clients/node/index.mjs';
import { Settlements, codeOf } from '$top/clients/node/settle.mjs';
import { asError, interval } from '$top/clients/node/job.mjs';

const system = (code) => Object.assign(new Error(code), { code, errno: -32, syscall: 'write' });
const server = (code) => Object.assign(new Error(code), { code, severity: 'ERROR' });
const show = (name, value) => console.log(name, JSON.stringify(value));

// EPIPE has the form of a SQLSTATE.
show('system', ['EPIPE', 'ECONNRESET'].map((code) => isTransient(system(code))));
show('ended', isTransient(new Error('Connection terminated unexpectedly')));
show('server', ['57P01', '40001', '25006', '42704', '54000', '22P05'].map((code) => isTransient(server(code))));
show('options', clientOptions('postgresql:///shop?host=/run/pg&port=5433&user=ada&application_name=w'));
show('one host', hostsOf('postgresql://ada\@db:5433/shop?application_name=w'));
show('no host', hostsOf(''));
show('hosts', hostsOf('postgresql://ada:x\@db1:1,db2:2/shop?target_session_attrs=read-write'));
show('sockets', hostsOf('postgresql:///shop?host=/run/a,/run/b&port=1,2'));
show('port', hostsOf('postgresql:///shop?host=a,b&port=1'));
show('first', clientOptions('postgresql:///shop?host=/run/a,/run/b&port=1,2'));
show('password', isTransient(new Error('SASL: SCRAM-SERVER-FIRST-MESSAGE: client password must be a string')));
// The server's socket, where libpq looks for it.
delete process.env.PGHOST;
process.env.PGPORT = 'node.' + process.pid;
writeFileSync('/tmp/.s.PGSQL.' + process.env.PGPORT, '');
for (const dsn of ['', undefined, 'postgresql:///shop', 'postgresql://db/shop']) show('socket', clientOptions(dsn));
const port = 20_000 + process.pid % 40_000;
const named = '/tmp/.s.PGSQL.' + port;
writeFileSync(named, '');
Object.assign(process.env, { PGSSLMODE: 'require', PGUSER: 'me' });
const reached = (dsn) => { const to = new pg.Client(clientOptions(dsn)).connectionParameters; return [to.host, to.port, to.user, to.ssl]; };
for (const dsn of ['///shop?sslmode=require&sslrootcert=/none', '//ada:x\@/shop', '//ada\@?port=' + port, '///shop?port=' + port,
  '//:' + port + '/shop', '///shop?host=/run/a&port=1&user=ada&ssl=true', '//%2Frun%2Fa/shop?port=1', '//ada\@db:1/shop']) {
  show('to', reached('postgresql:' + dsn).map((value) => (value === port ? 'named' : Number.isNaN(value) ? 'default' : value)));
}
rmSync(named);
rmSync('/tmp/.s.PGSQL.' + process.env.PGPORT);
show('TCP', clientOptions('postgresql:///shop'));
const client = { query: async (text, values) => { show("query", [text, values]); return { rows: [{ id: 1 }] }; } };
await enqueue(client, 'mail', [1], { uniqueKey: 'k', delay: 60, backoff: undefined });
await enqueue(client, 'mail', {}, { backoff: { type: 'fixed', base: 30, max: '1h' } });
const refused = (options) => enqueue(client, 'mail', {}, options).catch((error) => show('refused', error.message));
await refused({ prioritty: 1 });
await refused({ attempts: 3 });
await refused({ delay: 5000 });
await refused({ backoff: { base: 1000 } });
await refused({ backoff: { type: 'fixed', delay: 1000 } });
try { new Worker('', { grace: 30_000 }); } catch (error) { show('refused', error.message); }
for (const wrong of [() => new Worker('', { concurrency: '4' }), () => new Worker('').handler('mail', () => {}, { concurency: 4 })]) {
  try { wrong(); } catch (error) { show('refused', error.message); }
}
for (const dsn of ['', undefined, '/run/pg shop', 'postgres://db/shop', 'dbname=shop', 'shop']) {
  try { show('taken', new Worker(dsn).name !== ''); } catch (error) { show('refused', error.message); }
}
show('thrown', ['text', 42, undefined, { status: 500 }, Object.create(null), { message: 'said' }].map((thrown) => asError(thrown).message));
const milliseconds = (n) => { try { interval(n); return false; } catch { return true; } };
show('milliseconds', [1000, 5000, 30_000, 300_000, 3_600_000, 86_400_000].map(milliseconds));
show('seconds', [0.5, 60, 900, 1800, 3600, 7200, 36_000, 86_400, 7_776_000, 31_536_000, '5000 seconds'].map(milliseconds));
class NoSuchCity extends Error {}
class Named extends Error { name = 'ByName'; }
const aborted = await fetch('data:,x', { signal: AbortSignal.abort() }).catch((error) => error);
show('codes', [new Error('x'), new NoSuchCity('x'), new Named('x'), Object.assign(new Error('x'), { code: 404 }), Object.assign(new Error('x'), { code: 0 }),
  aborted, new Permanent('x'), new Retry('x', { code: 7 }), Object.assign(new Error('x'), { code: String.fromCharCode(233).repeat(200) }), 'text', null].map(codeOf)
  .map((code) => (code?.length > 100 ? Buffer.from(code).length : code)));
// Errors that pass are logged; one of the server's own is not met for ever.
const met = async (code, times) => {
  const log = [];
  const link = new Connection('', (entry) => log.push(entry.event), false);
  let tries = 0;

  link.client = { query: async () => { if (++tries <= times) throw server(code); return {}; } };
  await link.query({ text: 'SELECT 1' }, [], { again: () => true }).catch((error) => log.push(error.code));
  show('met', [tries, ...log]);
};
await met('40001', 2);
await met('XX000', 100);
// A listening connection finds out that the other machine is gone.
const listening = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
await once(listening, 'listening');
const setKeepAlive = Socket.prototype.setKeepAlive;
Socket.prototype.setKeepAlive = function (...given) { show('keepalive', given); return setKeepAlive.apply(this, given); };
await new Listener('postgresql://127.0.0.1:' + listening.address().port + '/shop', () => {}).open().catch(() => {});
listening.close();
// Only a Failure decides about another attempt; a code is a text or a number.
const told = async (error) => {
  const worker = { call: async (_, values) => { show('told', [...values.slice(2, 6), values[6]?.length > 100 ? 'stack' : values[6]]); return { rows: [{}] }; } };
  await new Settlements(worker).fail({}, error).catch((refused) => show('refused', refused.message));
};
const foreign = { retryable: false, retryAfter: 5000, code: Object.create(null), details: { n: 1n }, stack: undefined };
await told(Object.assign(new Error('x'), foreign));
await told(new Retry('y', { retryAfter: 5, details: [1] }));
// Node 18 has no toWellFormed.
delete String.prototype.toWellFormed;
const asked = { call: async (_, values) => ({ rows: [{ outcome: values[2] }] }) };
const stored = await new Settlements(asked).fail({}, new Error(String.fromCodePoint(0x1f600, 0xd800, 0, 97)));
show('stored', [...stored].map((c) => c.codePointAt(0).toString(16)));
END
is($err, '', 'the program runs');
is("$out\n", <<'END', 'its answers') or diag $out;
system [true,true]
ended true
server [true,true,true,false,false,false]
options {"connectionString":"postgresql://ada@localhost:5433/shop?host=%2Frun%2Fpg&application_name=w","keepAlive":true,"ssl":false}
one host ["postgresql://ada@db:5433/shop?application_name=w"]
no host [""]
hosts ["postgresql://ada:x@db1:1/shop?target_session_attrs=read-write","postgresql://ada:x@db2:2/shop?target_session_attrs=read-write"]
sockets ["postgresql:///shop?host=%2Frun%2Fa&port=1","postgresql:///shop?host=%2Frun%2Fb&port=2"]
port ["postgresql:///shop?host=a&port=1","postgresql:///shop?host=b&port=1"]
first {"connectionString":"postgresql://localhost:1/shop?host=%2Frun%2Fa","keepAlive":true,"ssl":false}
password false
socket {"keepAlive":true,"host":"/tmp","ssl":false}
socket {"keepAlive":true,"host":"/tmp","ssl":false}
socket {"connectionString":"postgresql://localhost/shop?host=%2Ftmp","keepAlive":true,"ssl":false}
socket {"connectionString":"postgresql://db/shop","keepAlive":true}
to ["/tmp","default","me",false]
to ["/tmp","default","ada",false]
to ["/tmp","named","ada",false]
to ["/tmp","named","me",false]
to ["/tmp","named","me",false]
to ["/run/a",1,"ada",false]
to ["/run/a",1,"me",false]
to ["db",1,"ada",true]
TCP {"connectionString":"postgresql:///shop","keepAlive":true}
query ["SELECT jobq.enqueue($1, $2, unique_key => $3, delay => $4) AS id",["mail","[1]","k","60 seconds"]]
query ["SELECT jobq.enqueue($1, $2, backoff => $3) AS id",["mail","{}","{\"type\":\"fixed\",\"base\":\"30 seconds\",\"max\":\"1h\"}"]]
refused "unknown option of enqueue: prioritty"
refused "unknown option of enqueue: attempts (maxAttempts here)"
refused "5000 seconds are 83 minutes: a number is seconds, not milliseconds; 5, or '5000 seconds'"
refused "1000 seconds are 17 minutes: a number is seconds, not milliseconds; 1, or '1000 seconds'"
refused "unknown option of backoff: delay (base here)"
refused "option grace: 30000 seconds are 500 minutes: a number is seconds, not milliseconds"
refused "option concurrency is out of range: '4'"
refused "unknown option of handler: concurency"
taken true
taken true
taken true
taken true
refused "dsn is no URI: postgresql://user@host:5432/database"
refused "dsn is no URI: postgresql://user@host:5432/database"
thrown ["text","42","undefined","{ status: 500 }","[Object: null prototype] {}","said"]
milliseconds [true,true,true,true,true,true]
seconds [false,false,false,false,false,false,false,false,false,false,false]
codes [null,"NoSuchCity","ByName","404","0","AbortError",null,"7",254,null,null]
met [3,"call_delayed","call_delayed"]
met [6,"call_delayed","call_delayed","call_delayed","call_delayed","call_delayed","XX000"]
keepalive [true,30000]
told ["x",null,null,null,null]
told ["y",true,null,"5 seconds","[1]"]
stored ["1f600","fffd","fffd","61"]
END
# The types name what index.mjs exports, and every module that it needs is in the package.
my $package = "$top/clients/node";
my %types = map { $_ => 1 } slurp_file("$package/index.d.mts") =~ /^export (?:class|function) (\w+)/mg;
my %exports = map { $_ => 1 } map { split /\s*,\s*/ } slurp_file("$package/index.mjs") =~ /^export \{ ([^}]*) \}/mg;
is_deeply([ sort keys %types ], [ sort keys %exports ], 'the types name all exports');

# A missing program is a failure in the full run.
my $npm = $ENV{JOBQ_FULL} || grep { -x "$_/npm" } split /:/, $ENV{PATH};
SKIP:
{
	skip 'npm is missing', 3 unless $npm;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my @quiet = ('--offline', '--no-audit', '--no-fund', '--loglevel=error', '--cache', "$dir/cache");
	my ($list) = run_command([ 'npm', 'pack', $package, '--json', '--pack-destination', $dir, @quiet ]);
	my %packed = map { $_ => 1 } $list =~ /"path": "([^"]*)"/g;
	is_deeply([ sort keys %packed ], [ sort 'package.json', 'README.md', map { s{.*/}{}r } glob("$package/*.mjs"), glob("$package/*.mts") ],
		'the package has all files of the client');

	# Installed in a directory, beside the driver.
	mkdir "$dir/app";
	ok(run_log([ 'npm', 'install', '--prefix', "$dir/app", '--legacy-peer-deps', @quiet, glob("$dir/jobq-*.tgz") ]), 'npm installs it');
	symlink "$ENV{NODE_PATH}/pg", "$dir/app/node_modules/pg" or die "symlink: $!";
	append_to_file("$dir/app/list.mjs", "import * as jobq from 'jobq';\nconsole.log(Object.keys(jobq).sort().join(' '));\n");
	my ($names) = run_command([ 'node', "$dir/app/list.mjs" ]);
	is($names, join(' ', sort keys %exports), 'it is imported from there');
}

# test/deps installs tsc.
SKIP:
{
	my $tsc = $ENV{JOBQ_TSC} // '';

	skip 'tsc is missing', 1 unless $ENV{JOBQ_FULL} || -e $tsc;
	my ($told, $complaint) = run_command([ 'node', $tsc, '--noEmit', '--strict', '--target', 'es2022', '--lib', 'es2022,dom',
		'--module', 'nodenext', '--moduleResolution', 'nodenext', '--preserveSymlinks', "$FindBin::Bin/types.mts" ]);
	is("$told$complaint", '', 'tsc accepts the types');
}
done_testing();
