# Rights through jobq-web: each operation of openapi.json as each kind of role.  What PostgreSQL
# refuses is refused; what row-level security hides is in no list, count, stream, error or holder,
# and is answered as what does not exist; redacted keys are in no answer to a reader.

use strict;
use warnings;

use JSON::PP;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

# Hidden from roles of tenant acme: tenant zebra; from those of type plain: type okapi; the data of
# both have the word giraffe, behind it the type.
my $node = web_node('roles', 'log_statement = all', 'max_connections = 60');
$node->safe_psql('postgres', <<'END');
SELECT jobq.create_job_type('plain', max_attempts => 1), jobq.create_job_type('okapi', max_attempts => 1), jobq.set_limit('shared', max_concurrent => 1);
SELECT jobq.alter_job_type('plain', options => '{"limits": ["shared"]}');
CREATE ROLE acme_reader LOGIN PASSWORD 'p'; SELECT jobq.grant_access('acme_reader', 'read', tenant => 'acme');
CREATE ROLE acme_admin LOGIN PASSWORD 'p'; SELECT jobq.grant_access('acme_admin', 'admin', tenant => 'acme'), jobq.grant_access('acme_admin', 'enqueue', tenant => 'acme');
CREATE ROLE plain_reader LOGIN PASSWORD 'p'; SELECT jobq.grant_access('plain_reader', 'read', job_types => '{plain}');
CREATE ROLE plain_admin LOGIN PASSWORD 'p'; SELECT jobq.grant_access('plain_admin', 'admin', job_types => '{plain}');
CREATE ROLE enqueuer LOGIN PASSWORD 'p'; SELECT jobq.grant_access('enqueuer', 'enqueue', tenant => 'acme', job_types => '{plain}');
CREATE ROLE worker LOGIN PASSWORD 'p'; SELECT jobq.grant_access('worker', 'work', tenant => 'acme', job_types => '{plain}');
CREATE ROLE stranger LOGIN PASSWORD 'p';
CREATE ROLE reader LOGIN PASSWORD 'p'; SELECT jobq.grant_access('reader', 'read');
CREATE TABLE made AS
  SELECT h.tenant, h.type, n, CASE n WHEN 1 THEN jobq.enqueue(h.type, jsonb_build_object('w', 'giraffe ' || h.type, 'secret', 'canary'), tenant => h.tenant, priority => 9, concurrency_key => 'giraffe ' || h.type, metadata => '{"secret": "canary"}')
                                     ELSE jobq.enqueue(h.type, jsonb_build_object('w', 'giraffe ' || h.type, 'secret', 'canary'), tenant => h.tenant, unique_key => format('giraffe %s %s', h.type, n)) END AS id
    FROM (VALUES ('zebra', 'plain'), ('acme', 'okapi')) h(tenant, type), generate_series(1, 4) n;
CREATE TABLE own AS SELECT jobq.enqueue('plain', '{"secret": "canary"}', tenant => 'acme') AS id FROM generate_series(1, 3);
SELECT jobq.schedule('giraffe night', '0 3 * * *', 'plain', payload => '{"secret": "canary"}', tenant => 'zebra'), jobq.schedule('own night', '0 3 * * *', 'plain', payload => '{"secret": "canary"}', tenant => 'acme');
SELECT jobq.create_workflow('flow', '[{"key": "wait", "event": "e"}]');
SELECT jobq.enqueue('flow', '{"w": "giraffe flow", "secret": "canary"}', tenant => 'zebra') AS run \gset
INSERT INTO made VALUES ('zebra', 'flow', 9, :'run');
SELECT jobq.set_tenant_quota('zebra', max_live => 1000);
END
# One hidden job of each is claimed, so that own ones wait for its limit; others die.
wait_for_sql($node, q{SELECT status = 'running' FROM jobq.jobs j JOIN made m USING (id) WHERE m.type = 'flow'}, 'a run');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.claim('{$_}', 1, worker => 'giraffe', lease => '1 hour', wait => '20 s') c JOIN made m USING (id) WHERE m.n = 1"), 1, "a hidden job of $_ is claimed")
  foreach qw(plain okapi);
$node->safe_psql('postgres', q{
	INSERT INTO jobq.events (job_id, job_type, tenant, type, source, level, message) SELECT m.id, m.type, m.tenant, 'log', 'handler', 'error', 'giraffe ' || m.type FROM made m;
	INSERT INTO jobq.alerts (severity, title, message, job_id, job_type, tenant, error_msg) SELECT 'high', 'giraffe ' || m.type, 'giraffe ' || m.type, m.id, m.type, m.tenant, 'giraffe ' || m.type FROM made m;
	INSERT INTO jobq.dead_letters (id, expires_at, scheduled_for, created_at, completed_at, type_id, attempts, max_attempts, runs, depth, priority, payload, result, error_msg, tenant)
	  SELECT gen_random_uuid(), 'infinity', now(), now(), now(), t.id, 1, 1, 1, 0, 0, '{"secret": "canary"}', '{"secret": "canary"}', 'giraffe ' || h.type, h.tenant
	    FROM (VALUES ('zebra', 'plain'), ('acme', 'okapi')) h(tenant, type) JOIN jobq.job_types t ON t.name = h.type;
	INSERT INTO jobq.dead_letters (id, expires_at, scheduled_for, created_at, completed_at, type_id, attempts, max_attempts, runs, depth, priority, payload, result, error_msg, tenant)
	  SELECT gen_random_uuid(), 'infinity', now(), now(), now(), t.id, 1, 1, 1, 0, 0, '{"secret": "canary"}', '{"secret": "canary"}', 'own', 'acme' FROM jobq.job_types t WHERE t.name = 'plain';
	INSERT INTO made SELECT d.tenant, t.name, 5, d.id FROM jobq.dead_letters d JOIN jobq.job_types t ON t.id = d.type_id WHERE d.error_msg LIKE 'giraffe%';
	INSERT INTO own SELECT d.id FROM jobq.dead_letters d WHERE d.error_msg = 'own';
	SELECT jobq.alter_job(id, priority => 3) FROM made WHERE n = 3});

my $web = start_web($node, redact => 'secret');
my %hidden = map { my ($column, $word) = split /=/; $word => [ split /\n/, $node->safe_psql('postgres', "SELECT id FROM made WHERE $column = '$word'") ] } qw(tenant=zebra type=okapi);
my @own = split /\n/, $node->safe_psql('postgres', 'SELECT id FROM own');
my $nowhere = '00000000-0000-7000-8000-000000000000';
my %of = (acme_reader => 'zebra', acme_admin => 'zebra', plain_reader => 'okapi', plain_admin => 'okapi', enqueuer => 'zebra', worker => 'zebra', stranger => 'zebra', reader => undef);
my @roles = sort keys %of;
my $document = (ask($web, 'GET', '/api/v1/openapi.json', headers => { basic('reader', 'p') }))[1];
my %left_out = map { $_ => 1 } 'POST /api/v1/session', 'DELETE /api/v1/session', 'GET /api/v1/stream', 'GET /livez', 'GET /api/v1/openapi.json';
my @operations;
foreach my $path (sort keys %{ $document->{paths} })
{
	push @operations, [ uc, $path, $document->{paths}{$path}{$_} ] foreach grep { !$left_out{ uc($_) . " $path" } } sort keys %{ $document->{paths}{$path} };
}
cmp_ok(scalar @operations, '>', 70, 'operations');

# A value for an argument; hidden ones by their word.
sub value_of
{
	my ($name, $path, $schema, $word) = @_;
	my $zebra = ($word // '') eq 'zebra';
	my %values = (
		id => $word ? $hidden{$word}[0] : $own[0], job_id => $word ? $hidden{$word}[0] : $own[0], lease_token => $nowhere,
		name => $path =~ /schedules/ ? ($zebra ? 'giraffe night' : 'own night') : $path =~ /workflows/ ? 'flow' : $path =~ /limits/ ? 'shared' : $path =~ /signals/ ? 'disk'
		  : ($word // '') eq 'okapi' ? 'okapi' : 'plain',
		tenant => $zebra ? 'zebra' : 'acme', collection_id => $zebra ? 'zebra' : 'acme', job_type => ($word // '') eq 'okapi' ? 'okapi' : 'plain',
		type => ($word // '') eq 'okapi' ? 'okapi' : 'plain', job_types => [ ($word // '') eq 'okapi' ? 'okapi' : 'plain' ],
		cron => '* * * * *', signal => 'disk', steps => [ { key => 'a', job_type => 'plain' } ], since => '2026-01-01', until => '2026-01-02',
		action => 'cancel', filter => { job_type => ($word // '') eq 'okapi' ? 'okapi' : 'plain', $zebra ? (tenant => 'zebra') : () }, token => 'x' x 43, active => JSON::PP::true);

	return $values{$name} if exists $values{$name};
	return $schema->{type} && $schema->{type} eq 'array' ? ['x'] : $schema->{format} && $schema->{format} =~ /int/ ? 1 : 'x';
}

sub escaped { return $_[0] =~ s/([^\w.-])/sprintf '%%%02X', ord $1/ger; }

# Sends an operation with its required arguments, and those that name what is hidden.
sub send_operation
{
	my ($role, $operation, $word, $id) = @_;
	my ($method, $path, $about) = @$operation;
	my (@query, %body);
	my $target = $path =~ s/\{(\w+)\}/escaped($1 eq 'id' && $id ? $id : value_of($1, $path, {}, $word))/ger;

	foreach (grep { $_->{in} eq 'query' } @{ $about->{parameters} // [] })
	{
		push @query, "$_->{name}=" . escaped(value_of($_->{name}, $path, $_->{schema}, $word))
		  if $_->{required} || (defined $word && $_->{name} =~ /^(?:tenant|collection_id|job_type)$/) || ($_->{name} eq 'tenant' && $path =~ /schedules\/\{/);
	}
	my $schema = $about->{requestBody} && $about->{requestBody}{content}{'application/json'}{schema};
	$body{$_} = value_of($_, $path, $schema->{properties}{$_}, $word) foreach $schema ? @{ $schema->{required} // [] } : ();
	$body{cpu_weight} = 1 if $path =~ /update_rule/;
	$body{tenant} = value_of('tenant', $path, {}, $word) if $schema && $schema->{properties}{tenant};
	$body{job_id} = $id if $id && exists $body{job_id};
	$body{wait} = '0' if $path =~ /claim/;
	return ask($web, $method, $target . (@query ? '?' . join('&', @query) : ''), headers => { basic($role, 'p') }, $schema ? (body => \%body) : ());
}

sub text_of { return ref $_[0] ? JSON::PP->new->canonical->encode($_[0]) : $_[0]; }
sub state_of { return $node->safe_psql('postgres', q{SELECT md5(string_agg(x::text, ' ' ORDER BY x::text)) FROM (
	SELECT to_jsonb(q) AS x FROM jobq.queue q WHERE q.id IN (SELECT id FROM made) UNION ALL SELECT to_jsonb(d) FROM jobq.dead_letters d WHERE d.id IN (SELECT id FROM made)
	UNION ALL SELECT to_jsonb(t) FROM jobq.job_types t UNION ALL SELECT to_jsonb(l) FROM jobq.limits l UNION ALL SELECT to_jsonb(s) - 'changed_at' FROM jobq.signals s
	UNION ALL SELECT to_jsonb(r) FROM jobq.pressure_rules r UNION ALL SELECT to_jsonb(s) FROM jobq.stopped s UNION ALL SELECT to_jsonb(w) FROM jobq.workflows w
	UNION ALL SELECT to_jsonb(q) FROM jobq.tenant_quotas q UNION ALL SELECT to_jsonb(s) FROM jobq.schedules s WHERE s.tenant = 'zebra') y}); }

# ---------- what is hidden ----------

foreach my $role (grep { defined $of{$_} } @roles)
{
	my $word = $of{$role};
	my $ids = join '|', @{ $hidden{$word} };
	my (@shown, @told, @odd, @crossed);

	foreach my $operation (grep { $_->[0] eq 'GET' } @operations)
	{
		my $name = "$operation->[0] $operation->[1]";

		foreach (undef, $word)
		{
			my ($status, $answer) = send_operation($role, $operation, $_);

			$answer->{detail} =~ s/job "$hidden{$word}[0]" does not exist// if $status == 404 && defined;
			push @odd, "$name: $status" if $status >= 500 && $status != 503;
			push @shown, $name if text_of($answer) =~ /$ids/ || (!defined && text_of($answer) =~ /\b$word\b/);
			push @shown, "$name: giraffe" if text_of($answer) =~ ($word eq 'zebra' ? qr/giraffe (?!okapi)/ : qr/giraffe okapi/);
			push @crossed, $name if text_of($answer) =~ /canary/;
		}
	}
	foreach my $operation (grep { $_->[1] =~ /\{id\}|intentions/ } @operations)
	{
		my @answers = map { my ($status, $answer) = send_operation($role, $operation, undef, $_); "$status " . text_of($answer) =~ s/$_/ID/gr } $hidden{$word}[0], $nowhere;

		push @told, "$operation->[0] $operation->[1]: @answers" if $answers[0] ne $answers[1];
	}
	is("@shown", '', "$role: no answer shows what is hidden");
	is("@told", '', "$role: a hidden job is answered as one that does not exist");
	is("@crossed", '', "$role: no answer has a redacted value");
	is("@odd", '', "$role: no error of the server");
}

# ---------- redacted values ----------

# Of every job, live, dead and finished, with values at all places that a job, its events, its run
# and its schedule have.
$node->safe_psql('postgres', q{
	INSERT INTO jobq.events (job_id, job_type, tenant, type, source, data) SELECT id, 'plain', 'acme', 'log', 'handler', '{"a": [{"secret": {"b": ["canary"]}}]}' FROM own;
	UPDATE jobq.queue SET progress_data = '{"secret": "canary"}', error_details = '{"secret": ["canary"]}' WHERE id IN (SELECT id FROM own);
	SELECT jobq.send_event(id, 'e', '{"secret": "canary"}') FROM made WHERE type = 'flow'});
wait_for_sql($node, q{SELECT status = 'completed' FROM jobq.jobs j JOIN made m USING (id) WHERE m.type = 'flow'}, 'the run ends');
$node->safe_psql('postgres', q{SELECT jobq.set_limit('shared', max_concurrent => 9)});
$node->safe_psql('postgres', q{CREATE TABLE before AS SELECT c.* FROM jobq.claim('{plain}', 1, wait => '20 s') c});
$node->safe_psql('postgres', q{SELECT jobq.complete(id, lease_token, '{"secret": "canary"}') FROM before; INSERT INTO own SELECT id FROM before});
is($node->safe_psql('postgres', q{SELECT result FROM jobq.jobs j JOIN before USING (id)}), '{"secret": "canary"}', 'a result');
is($node->safe_psql('postgres', q{SELECT count(*) > 10 FROM jobq.jobs j WHERE j::text ~ 'canary'}), 't', 'jobs have such values');
my @leaks;
foreach my $operation (grep { $_->[0] eq 'GET' } @operations)
{
	foreach my $id ($operation->[1] =~ /\{id\}/ ? (split /\n/, $node->safe_psql('postgres', 'SELECT id FROM own UNION SELECT id FROM made')) : undef)
	{
		my ($status, $answer) = send_operation('reader', $operation, undef, $id);

		push @leaks, $operation->[1] if text_of($answer) =~ /canary/;
	}
}
is("@leaks", '', 'no GET has one');

# ---------- counts ----------

foreach my $role (qw(acme_reader plain_reader acme_admin))
{
	my %by = map { split /=/ } split /\n/, $node->safe_psql('postgres', "SET ROLE $role; SELECT status || '=' || count(*) FROM jobq.jobs GROUP BY status");
	my $page = (ask($web, 'GET', '/admin/jobs', headers => { basic($role, 'p') }))[1];
	my $overview = (ask($web, 'GET', '/api/v1/overview', headers => { basic($role, 'p') }))[1];
	my $errors = (ask($web, 'GET', '/api/v1/errors', headers => { basic($role, 'p') }))[1];
	my $live = 0;
	my $n = 0;

	is_deeply({ map { $_ => $page->{counts}{$_}{n} } keys %{ $page->{counts} } }, { map { $_ => $by{$_} // 0 } keys %{ $page->{counts} } }, "$role: /admin/jobs counts its jobs");
	foreach my $type (@{ $overview->{types} })
	{
		$live += $type->{$_} foreach qw(pending blocked retry running dead);
	}
	is($live, eval join('+', 0, map { $by{$_} } grep { !/completed|skipped|cancelled/ } keys %by), 'so does the overview');
	$n += $_->{n} foreach @{ $errors->{items} };
	is($n, $by{error} // 0, 'and errors');
	foreach my $filter ({ tenant => 'zebra' }, { job_type => 'plain' })
	{
		my ($status, $preview) = ask($web, 'POST', '/api/v1/bulk', headers => { basic($role, 'p') }, body => { action => 'cancel', filter => $filter });
		my $where = $filter->{tenant} ? "tenant = 'zebra'" : "job_type = 'plain'";

		is($preview->{n}, $node->safe_psql('postgres', "SET ROLE $role; SELECT count(*) FROM jobq.jobs WHERE $where AND status IN ('pending', 'blocked', 'retry')"), "a preview of $where");
	}
}

# ---------- streams ----------

foreach my $role (qw(acme_reader plain_reader))
{
	my $socket = connect_web($web);
	my $all = '';

	syswrite($socket, "GET /api/v1/stream HTTP/1.1\r\nHost: a\r\nAuthorization: " . { basic($role, 'p') }->{Authorization} . "\r\n\r\n");
	sysread($socket, $all, 65536, length $all) or last until $all =~ /event: overview\ndata: [^\n]+\n\n/;
	my $ids = join '|', @{ $hidden{ $of{$role} } };
	like($all, qr/"plain"/, "$role: a stream");
	unlike($all, qr/giraffe|canary|\b$of{$role}\b|$ids/, 'without what is hidden');
}

# ---------- the matrix ----------

my $before = state_of();

# A statement is refused with 403 if the role lacks the right on a function or table that it names,
# and only then; a read of the overview goes on with another statement.
my (%statuses, @wrong);
foreach my $operation (@operations)
{
	foreach my $role (@roles)
	{
		next if $operation->[1] =~ /bulk|overview/;
		my $from = -s $node->logfile;
		my ($status, $answer) = send_operation($role, $operation, $of{$role});
		# what is refused at its planning is not logged as executed
		my $log = join ' ', substr(slurp_file($node->logfile), $from) =~ /(?:LOG:  execute <unnamed>:|STATEMENT: ) (.*)/g;
		my %functions = map { $_ => 1 } $log =~ /\b(jobq(?:_internal)?\.\w+)\(/g;
		my %tables = map { $_ => 1 } $log =~ /\b(?:FROM|JOIN) (jobq\.\w+)\b(?!\()/g;
		my @missing = grep { length } split /\n/, $node->safe_psql('postgres', join ' UNION ALL ', "SELECT NULL WHERE false",
			"SELECT 'schema' WHERE NOT has_schema_privilege('$role', 'jobq', 'USAGE')",
			(map { "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace || '.' || p.proname = '" . (split /\./)[0] . "'::regnamespace::oid || '." . (split /\./)[1] . "' AND NOT has_function_privilege('$role', p.oid, 'EXECUTE')" } sort keys %functions),
			(map { "SELECT '$_' WHERE NOT (has_table_privilege('$role', '$_', 'SELECT') OR has_any_column_privilege('$role', '$_', 'SELECT'))" } sort keys %tables));
		my $refused = $status == 403 && ($answer->{detail} // '') =~ /^permission denied for (?:schema|function|table|view)/;

		$statuses{$status}++;
		push @wrong, "$role $operation->[0] $operation->[1]: $status, lacks @missing" if $log =~ /jobq\./ && ($refused xor @missing > 0) && $status != 400;
	}
}
is(join("\n", @wrong), '', 'an operation is refused exactly where PostgreSQL refuses its functions and tables');
note join ' ', map { "$_: $statuses{$_}" } sort keys %statuses;
cmp_ok($statuses{$_} // 0, '>', 100, "many are answered by $_") foreach 200, 403;
is(state_of(), $before, 'no call has changed what its role may not');

is(stop_web($web), 0, 'it ends');
done_testing();
