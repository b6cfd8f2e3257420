# A tenant is a path: paths such as '..' are refused, and the tenants
# below a tenant share its turns.

use strict;
use warnings;

use ExecTest;
use Test::More;

my $node = jobq_node('tenants', 'jobq.max_sql_workers = 1');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub error_of
{
	my ($sql) = @_;
	my (undef, undef, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");

	return $stderr;
}

# ---------- paths ----------

define_tool($node, 'tell', [ 'printenv', 'JOBQ_TENANT' ], options => q('{"output": "text"}'));
for my $tenant ('/', '/etc', 'acme//', 'acme//eu', '..', '../beta', 'acme/../beta', 'acme/..', 'acme/../', '.', './', './acme', 'acme/.', 'acme/./eu', '//')
{
	my $refused = qr/ERROR:  22023: (job 1: )?argument "tenant": "\Q$tenant\E" begins with a slash or has an element that is empty, "\." or "\.\."/;

	like(error_of("SELECT jobq.enqueue('tell', tenant => '$tenant')"), $refused, "$tenant: enqueue");
	like(error_of("SELECT jobq.enqueue_many('tell', '{\"{}\"}', tenant => '$tenant')"), $refused, "$tenant: enqueue_many");
	like(error_of("SELECT jobq.enqueue_jobs('[{\"job_type\": \"tell\", \"tenant\": \"$tenant\"}]')"), $refused, "$tenant: enqueue_jobs");
	like(error_of("SET jobq.tenant = '$tenant'; SELECT jobq.enqueue('tell')"), $refused, "$tenant: jobq.tenant");
}
is(sql('SELECT count(*) FROM jobq.queue'), 0, 'nothing was enqueued');
for my $tenant ('acme', 'acme/', 'acme/eu', 'acme/eu/..de', '...', '.acme', 'a.b', 'acme/e u', 'acme\eu', '..acme/eu..')
{
	is(run_job($node, 'tell', '{}', tenant => "'$tenant'")->{result}, "$tenant\n", "$tenant is one");
}

# ---------- turns ----------

sql(<<'END');
CREATE TABLE ledger (n int GENERATED ALWAYS AS IDENTITY, type text, tenant text);
CREATE FUNCTION note() RETURNS void LANGUAGE sql AS $$
  INSERT INTO public.ledger (type, tenant) SELECT job_type, tenant FROM jobq.current_job()
$$;
END

# The tenants of the type's jobs, in the order of their runs; they are
# given in the order of enqueue.
sub turns
{
	my ($type, $options, @tenants) = @_;

	sql("SELECT jobq.create_job_type('$type', 'note()', max_concurrent => 1, options => '$options'), jobq.pause_job_type('$type')");
	sql("SELECT count(jobq.enqueue('$type', tenant => '$_'))") for @tenants;
	sql("SELECT jobq.resume_job_type('$type')");
	$node->poll_query_until('postgres', "SELECT count(*) = " . @tenants . " FROM ledger WHERE type = '$type'");
	return sql("SELECT string_agg(tenant, ' ' ORDER BY n) FROM ledger WHERE type = '$type'");
}
my $fair = '"fair_by": "tenant", "batch": false';
my @jobs = ((map { "a/$_" } 1 .. 6), 'b', 'b/1', 'b/1/x');
is(turns('tenant', "{$fair}", @jobs), 'a/1 b a/2 b/1 a/3 b/1/x a/4 a/5 a/6', 'many tenants below one have the turns of one');
is(turns('given', "{$fair, \"fair_depth\": 1}", @jobs), 'a/1 b a/2 b/1 a/3 b/1/x a/4 a/5 a/6', 'fair_depth is 1');
is(turns('below', "{$fair, \"fair_depth\": 2}", ('a/1/x') x 3, 'a/1/y', 'a/2', 'a/2/x'), 'a/1/x a/2 a/1/x a/2/x a/1/x a/1/y', 'fair_depth 2: those below take turns');
is(turns('deep', "{$fair, \"fair_depth\": 100}", ('a/1') x 3, 'a/1/y', 'a'), 'a/1 a/1/y a a/1 a/1', 'a large one: each tenant for itself');
is(sql("SELECT count(DISTINCT jobq_internal._sublane(id, tenant)) FROM jobq.job_types, unnest('{a,a/b,a/b/c,ab}'::text[]) tenant WHERE name = 'tenant'"), 2, 'a tenant with the same beginning of its name is another');

like(error_of("SELECT jobq.alter_job_type('deep', options => '{\"fair_depth\": 0}')"), qr/ERROR:  22003: option "fair_depth": 0 is outside 1\.\.100/, 'not 0');
like(error_of("SELECT jobq.alter_job_type('deep', options => '{\"fair_depth\": \"1\"}')"), qr/ERROR:  22023: option "fair_depth": "1" is not a whole number/, 'no text');
sql(q{SELECT jobq.alter_job_type('deep', options => '{"fair_depth": null}')});
is(sql("SELECT count(DISTINCT jobq_internal._sublane(id, tenant)) FROM jobq.job_types, unnest('{a,a/b}'::text[]) tenant WHERE name = 'deep'"), 1, 'null takes it back to 1');

$node->stop;
done_testing();
