# docs/api.md is the page that docs/reference/api.pl makes of openapi.json now.  `make docs`
# (JOBQ_WRITE_DOCS) leaves the comparison out; the new page is in the log directory.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use JSON::PP;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

my $top = "$FindBin::Bin/..";
my $new = $ENV{JOBQ_NEW_DOCS} =~ s{[^/]+$}{api.md}r;
my $node = web_node('reference_api');
$node->safe_psql('postgres', "CREATE ROLE anna LOGIN PASSWORD 'a'; SELECT jobq.grant_access('anna', 'read')");
my $web = start_web($node);
my ($status, $api) = ask($web, 'GET', '/api/v1/openapi.json', headers => { basic('anna', 'a') });
is($status, 200, 'openapi.json');
my ($page, $errors);
IPC::Run::run([ $^X, "$top/docs/reference/api.pl" ], '<', \encode_json($api), '>', \$page, '2>', \$errors);
is($errors, '', 'api.pl makes the page');
unlink $new;
append_to_file($new, $page);
ok(slurp_file("$top/docs/api.md") eq $page, 'docs/api.md is current, or run `make docs`') or diag(qx(diff -u "$top/docs/api.md" "$new" 2>&1))
  if !$ENV{JOBQ_WRITE_DOCS};
is(stop_web($web), 0, 'jobq-web ends');
done_testing();
