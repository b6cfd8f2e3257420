# The files of the page: headers, compression, what browsers keep, the page at paths of programs.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

my $node = web_node('page');
my $web = start_web($node);
my $page = slurp_file("$FindBin::Bin/../../src/web/page/index.html");
my %html = (headers => { Accept => 'text/html,application/xhtml+xml,*/*;q=0.8' });
my $policy = qr/^default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'$/;

my ($status, $body, $headers) = ask($web, 'GET', '/');
is("$status $headers->{'content-type'}", '200 text/html; charset=utf-8', 'the page needs no sign-in');
is($body, $page, 'and is index.html');
like($headers->{'content-security-policy'}, $policy, 'its policy');
is(join('|', map { $headers->{$_} } qw(cache-control x-content-type-options referrer-policy)), 'no-store|nosniff|no-referrer', 'its headers');

# ---------- every file that it names ----------

my %seen;
my @todo = map { "/$_" } $page =~ /(?:src|href)="([^"#]*)"/g;
while (my $path = shift @todo)
{
	next if $seen{$path}++;
	my ($directory) = $path =~ m{(.*/)};
	($status, $body, $headers) = ask($web, 'GET', $path);
	is($status, 200, $path);
	like($headers->{'content-security-policy'}, $policy, "$path: its policy");
	my ($packed_status, $packed, $packed_headers) = ask($web, 'GET', $path, headers => { 'Accept-Encoding' => 'br, gzip;q=0.5' });
	is(join('|', $packed_status, map { $packed_headers->{$_} // '' } qw(content-encoding vary cache-control)), '200|gzip|Accept-Encoding|no-cache',
		"$path: compressed");
	ok($packed eq $body, "$path: the same");
	my $tag = $headers->{etag};
	my ($again, $nothing) = ask($web, 'GET', $path, headers => { 'If-None-Match' => qq("x", $tag) });
	is("$again|$nothing", '304|', "$path: known to the browser");
	is(status_of($web, 'GET', $path, headers => { 'If-None-Match' => '"x"' }), 200, "$path: another one is known");
	push @todo, map { ref_path($directory, $_) } $path =~ /\.js$/ ? $body =~ /(?:from|import)\s*\(?\s*'(\.[^']*)'/g : ();
}
ok(keys %seen > 3, scalar(keys %seen) . ' files');
is(status_of($web, 'GET', '/assets/app.js', headers => { 'Accept-Encoding' => 'gzip;q=0' }), 200, 'gzip is refused');
is((ask($web, 'GET', '/assets/app.js', headers => { 'Accept-Encoding' => 'gzip;q=0' }))[2]{'content-encoding'}, undef, 'and not used');

# The path of a module that one in this directory names.
sub ref_path
{
	my ($directory, $name) = @_;

	$name =~ s{^\./}{};
	$directory =~ s{[^/]+/$}{} while $name =~ s{^\.\./}{};
	return "$directory$name";
}

# ---------- names that it copies ----------

my ($list) = slurp_file("$FindBin::Bin/../../src/web/page/settings.js") =~ /^const optionNames = \{(.*?)^\};/ms;
my %kinds;
while ($list =~ /(\w+): \[(.*?)\]/gs)
{
	my ($kind, $names) = ($1, $2);
	push @{ $kinds{$_} }, $kind foreach $names =~ /'(\w+)'/g;
}
is(join("\n", map { "$_ " . join ' ', sort @{ $kinds{$_} } } sort keys %kinds),
	$node->safe_psql('postgres', q{SELECT key || ' ' || replace(kind, ', ', ' ') FROM jobq.option_keys ORDER BY key COLLATE "C"}),
	'its options are those of jobq.option_keys');

my $observe = "$FindBin::Bin/../../src/observe";
my %checks = map { $_ => 1 } map { slurp_file($_) =~ /add_check\(&?report, "(\w+)"/g } "$observe/health.c", "$observe/health_processes.c";
my ($names) = slurp_file("$FindBin::Bin/../../src/web/page/overview.js") =~ /^const names = \{(.*?)^\};/ms;
ok(keys %checks > 10, 'the checks of health()');
is_deeply([ sort $names =~ /(\w+): '/g ], [ sort keys %checks ], 'it has a name for each');

# ---------- other paths ----------

is(status_of($web, 'GET', $_), 404, "no $_") foreach '/assets/', '/assets/none.js', '/assets/vendor/none.js', '/assets/README.md', '/assets/vendor/..%2fapp.js',
  '/assets/..%2f..%2fmain.c', '/index.html';
is(status_of($web, 'POST', '/', body => {}), 405, 'no POST');
($status, $body, $headers) = ask($web, 'HEAD', '/');
is("$status|$body", '200|', 'HEAD');
foreach my $path ('/admin/jobs?status=error', '/health')
{
	my $up = '../' x ($path =~ tr{/}{} - 1);

	($status, $body, $headers) = ask($web, 'GET', $path, %html);
	is("$status $headers->{'content-type'}", '200 text/html; charset=utf-8', "a browser gets the page at $path");
	is_deeply([ $body =~ /="([^"]*assets\/[^"]*)"/g ], [ map { "$up$_" } $page =~ /="(assets\/[^"]*)"/g ], 'with links to its files');
	is(status_of($web, 'GET', $path), 401, 'a program must sign in');
}
stop_web($web);

$web = start_web($node, base_path => '/queue');
is(status_of($web, 'GET', '/queue/'), 200, 'below a prefix');
is(status_of($web, 'GET', '/queue/assets/app.js'), 200, 'its files');
is(status_of($web, 'GET', '/'), 404, 'and not above it');
like((raw($web, "GET /queue HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))[0], qr{^HTTP/1.1 308 .*^Location: queue/\r}ms, 'without its slash');
stop_web($web);

done_testing();
