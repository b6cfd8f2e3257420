# Errors as a client sees them: hints to errors that PostgreSQL raises before any code
# of jobq runs, and no CONTEXT.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('errors');
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION jobq;
CREATE SCHEMA app;
GRANT USAGE ON SCHEMA app TO PUBLIC;
CREATE FUNCTION app.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
CREATE FUNCTION app.enqueue() RETURNS void LANGUAGE sql RETURN NULL;
REVOKE EXECUTE ON FUNCTION app.enqueue FROM PUBLIC;
CREATE ROLE stranger LOGIN;
});

sub error_of
{
	my ($code, $out, $err) = $node->psql('postgres', join(";\n", @_), on_error_stop => 1);
	return $err;
}

my $types = qr/HINT:  Write the argument types: ok\(jsonb\)\.$/m;
like(error_of(q{SELECT jobq.create_job_type('t', 'app.ok')}), $types, 'a handler without parentheses');
like(error_of(q{SELECT jobq.create_job_type(handler => 'app.ok', name => 't')}), $types, 'named');
unlike(error_of(q{SELECT 'app.ok'::regprocedure}), qr/HINT/, 'a statement that is none of jobq');
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('t', 'app.ok(jsonb)')});
like(error_of(q{SELECT jobq.alter_job_type('t', 'app.ok')}), $types, 'alter_job_type');

my $access = qr/HINT:  jobq\.grant_access gives the right to call functions of jobq\.$/m;
foreach my $call (q{jobq.enqueue('t')}, q{jobq.enqueue_jobs('[]')}, q{jobq.cancel_job(gen_random_uuid())})
{
	my $err = error_of('SET ROLE stranger', "SELECT $call");

	like($err, qr/ERROR:  permission denied for function \w+\nHINT/, "$call of a role without access");
	like($err, $access, '... with a hint');
}
unlike(error_of('SET ROLE stranger', 'SELECT app.enqueue()'), qr/HINT/, 'a function of the same name');
$node->safe_psql('postgres', q{SELECT jobq.grant_access('stranger', 'enqueue', 'acme')});
like(error_of('SET ROLE stranger', q{SELECT jobq.enqueue('t', tenant => 'beta')}), qr/HINT:  .*jobq\.grant_access/, 'another tenant');

unlike(error_of(q{SELECT jobq.create_job_type('t', 'app.ok(jsonb)')}), qr/CONTEXT/, 'no CONTEXT in psql');
like(error_of(q{DO $$ BEGIN PERFORM jobq.create_job_type('t', 'app.ok(jsonb)'); END $$}),
	qr/CONTEXT:  SQL statement "[^"]*"\nPL\/pgSQL function inline_code_block line 1 at PERFORM$/m, "the caller's own stays");

done_testing();
