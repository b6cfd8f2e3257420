# jobq.why of some thousands of jobs (JOBQ_FULL: 10,000) with random causes to wait: it names
# exactly the causes that a model expects.  The causes are removed one by one; each time the jobs
# without a cause left start, and no others.

use strict;
use warnings;

use IPC::Run ();
use List::Util 'shuffle';
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $jobs = $ENV{JOBQ_FULL} ? 10_000 : 3000;
my $sessions = 4;
my $seed = seed();

my $node = jobq_server('why_random', 'jobq.max_sql_workers = 10', 'max_worker_processes = 30', 'fsync = off');
$node->start;
$node->safe_psql('postgres', setseed($seed, 1) . ";\n" . <<'END');
CREATE EXTENSION jobq;
CREATE TABLE gate (name text);
CREATE FUNCTION ok(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE p ? 'gate' AND NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
-- the causes of each type; those of a job are delayed, keyed, of_full
CREATE TABLE types (name text PRIMARY KEY, paused boolean, signal boolean, "limit" boolean, shared_limit boolean, rate boolean);
CREATE TABLE jobs (id uuid PRIMARY KEY, type text, delayed boolean, keyed boolean, of_full boolean);
CREATE TABLE removed (cause text);
CREATE TABLE answers (id uuid, codes text[]);
INSERT INTO types SELECT 'type ' || i, random() < 0.25, random() < 0.25, i <= 3, i BETWEEN 4 AND 8, random() < 0.2 FROM generate_series(1, 30) i;
SELECT jobq.set_limit('shared', 1), jobq.set_signal('busy', false);
SELECT jobq.create_job_type(name, 'ok(jsonb)', max_concurrent => "limit"::int, rate_limit => rate::int, rate_window => '1h',
  options => CASE WHEN shared_limit THEN '{"limits": ["shared"], "batch": false}' ELSE '{"batch": false}' END::jsonb) FROM types;
SELECT jobq.create_job_type('holder', 'ok(jsonb)'), jobq.create_job_type('shared holder', 'ok(jsonb)', options => '{"limits": ["shared"]}');
SELECT jobq.set_pressure_rule(name, 'busy', block => true) FROM types WHERE signal;
SELECT jobq.set_tenant_quota('full', max_running => 1);
-- fill windows and limits
SELECT jobq.enqueue(name, CASE WHEN "limit" THEN '{"gate": "limit"}' ELSE '{}' END::jsonb) FROM types WHERE "limit" OR rate;
END
wait_for_sql($node, q{SELECT count(*) = 0 FROM jobq.jobs j JOIN types t ON t.name = j.job_type
  WHERE j.status <> CASE WHEN t."limit" THEN 'running' ELSE 'completed' END::jobq.job_status}, 'windows and limits are full');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(q{SELECT jobq.enqueue('holder', '{"gate": "keyed"}', concurrency_key => 'k'), jobq.enqueue('holder', '{"gate": "of_full"}', tenant => 'full'),
  jobq.enqueue('shared holder', '{"gate": "shared_limit"}')});
wait_for_sql($node, q{SELECT count(*) = 3 FROM jobq.jobs WHERE job_type LIKE '%holder' AND status = 'running'}, 'key, tenant and shared limit are held');
sql(<<"END");
SELECT jobq.set_signal('busy', true), (SELECT count(jobq.pause_job_type(name)) FROM types WHERE paused);
END
sql(setseed($seed, 2) . ";\n" . <<"END");
WITH made AS (
  SELECT jobq.enqueue(t.name, priority => (random() * 3)::int, delay => CASE WHEN c.delayed THEN interval '1 day' END,
                      concurrency_key => CASE WHEN c.keyed THEN 'k' END, tenant => CASE WHEN c.of_full THEN 'full' WHEN random() < 0.5 THEN 'other' END) AS id,
         t.name, c.*
    FROM generate_series(1, $jobs) i, LATERAL (SELECT 1 + floor(random() * 30 + i * 0)::int) p(n), LATERAL (SELECT * FROM types WHERE name = 'type ' || p.n) t,
         LATERAL (SELECT random() < 0.15 + i * 0, random() < 0.15, random() < 0.15) c(delayed, keyed, of_full))
INSERT INTO jobs SELECT id, name, delayed, keyed, of_full FROM made WHERE id IS NOT NULL;
-- a key has no tenant's part: jobs of another tenant have another key
UPDATE jobs j SET keyed = false FROM jobq.queue q WHERE q.id = j.id AND q.tenant IS NOT NULL;
CREATE VIEW causes AS
SELECT j.id, j.type, array_remove(ARRAY[
         CASE WHEN j.delayed AND 'delayed' <> ALL (x.r) THEN 'scheduled' END,
         CASE WHEN t.paused AND 'paused' <> ALL (x.r) THEN 'type_paused' END,
         CASE WHEN t.signal AND 'signal' <> ALL (x.r) THEN 'signal' END,
         -- what is decided when a job is due
         CASE WHEN d.due AND t."limit" AND 'limit' <> ALL (x.r) THEN 'limit' END,
         CASE WHEN d.due AND j.of_full AND 'of_full' <> ALL (x.r) THEN 'limit' END,
         CASE WHEN d.due AND t.shared_limit AND 'shared_limit' <> ALL (x.r) THEN 'shared_limit' END,
         CASE WHEN d.due AND t.rate AND 'rate' <> ALL (x.r) THEN 'rate' END,
         CASE WHEN d.due AND j.keyed AND 'keyed' <> ALL (x.r) THEN 'key' END], NULL) AS codes
  FROM jobs j JOIN types t ON t.name = j.type, (SELECT coalesce(array_agg(cause), '{}') FROM removed) x(r),
       LATERAL (SELECT NOT j.delayed OR 'delayed' = ANY (x.r)) d(due);
END
cmp_ok(sql('SELECT count(*) FROM jobs'), '>=', $jobs * 0.9, 'thousands of jobs');
# All jobs that still wait, asked by several sessions; true if the answers are those of the model.
sub answers_agree
{
	my ($what) = @_;
	my @running;

	sql('TRUNCATE answers');
	foreach my $n (0 .. $sessions - 1)
	{
		my $query = "INSERT INTO answers SELECT j.id, ARRAY(SELECT r->>'code' FROM jsonb_array_elements(jobq.why(j.id)->'reasons') r)"
		  . " FROM (SELECT q.id FROM jobs x JOIN jobq.queue q USING (id) WHERE abs(hashtext(q.id::text)) % $sessions = $n OFFSET 0) j";
		push @running, IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', $query ], '<', \undef, '>', \my $out);
	}
	ok($_->finish, "$what: a session has its answers") foreach @running;
	is(sql(<<'END'), '', "$what: the answers are those of the model");
SELECT string_agg(format('%s %s: %s, expected %s', d.id, d.type, d.named, d.codes), E'\n')
  FROM (SELECT c.id, c.type, c.codes, n.named FROM answers a JOIN causes c USING (id),
               LATERAL (SELECT ARRAY(SELECT u FROM unnest(a.codes) u WHERE u NOT IN ('slots', 'behind'))) n(named)
         WHERE ARRAY(SELECT unnest(n.named) ORDER BY 1) <> ARRAY(SELECT unnest(c.codes) ORDER BY 1) LIMIT 10) d
END
	return is(sql('SELECT count(*) FROM jobq.queue JOIN jobs USING (id)'), sql('SELECT count(*) FROM answers'), "$what: every job has its answer");
}

# What ends each cause.
my %removal = (
	delayed => q{UPDATE jobq.queue q SET scheduled_for = now(), position = now() FROM jobs j WHERE j.id = q.id AND j.delayed},
	paused => 'SELECT jobq.resume_job_type(name) FROM types WHERE paused',
	signal => q{SELECT jobq.set_signal('busy', false)},
	limit => q{SELECT jobq.alter_job_type(name, max_concurrent => 0) FROM types WHERE "limit"; INSERT INTO gate VALUES ('limit')},
	shared_limit => q{SELECT jobq.set_limit('shared', 0); INSERT INTO gate VALUES ('shared_limit')},
	rate => 'SELECT jobq.alter_job_type(name, rate_limit => 0) FROM types WHERE rate',
	keyed => q{INSERT INTO gate VALUES ('keyed')},
	of_full => q{INSERT INTO gate VALUES ('of_full')},
);

# Waits until the jobs without a cause have ended.
sub others_end
{
	my ($what) = @_;

	return wait_for_sql($node, q{SELECT count(*) = 0 FROM causes c JOIN jobq.queue q USING (id) WHERE c.codes = '{}'}, "$what: jobs without a cause start");
}

others_end('at first');
answers_agree('at first');
foreach my $cause (shuffle(sort keys %removal))
{
	sql($removal{$cause});
	sql("INSERT INTO removed VALUES ('$cause')");
	others_end($cause);
	answers_agree("without $cause");
	is(sql(q{SELECT count(*) FROM causes c LEFT JOIN jobq.queue q USING (id) WHERE c.codes <> '{}' AND q.id IS NULL}), '0', "without $cause: no other has started");
}
is(sql('SELECT count(*) FROM jobq.queue JOIN jobs USING (id)'), '0', 'all have run');
$node->stop;
done_testing();
