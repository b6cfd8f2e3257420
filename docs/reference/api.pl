#!/usr/bin/env perl
# Writes docs/api.md from the openapi.json of jobq-web, which it reads from its input.
# `make docs` runs it (test/reference_api.pl).

use strict;
use warnings;
use JSON::PP;
use Text::Wrap ();

$Text::Wrap::columns = 101;
$Text::Wrap::huge = 'overflow';
$Text::Wrap::break = qr/ /;

my $api = JSON::PP->new->utf8->decode(do { local $/; <STDIN> });
my @always = (400, 413, 414, 417, 429, 431, 503, 505);
my @signed = (401, 403);
my @run = (500, 501, 504, 507);
my %common = map { $_ => 1 } @always, @signed, @run;

sub fill { return Text::Wrap::wrap('', '', $_[0]) . "\n"; }
sub bullet { return Text::Wrap::wrap('- ', '  ', $_[0]) . "\n"; }

# The type of a schema in a few words.
sub type_of
{
	my ($schema) = @_;

	if (my $name = ($schema->{'$ref'} // '') =~ s{.*/}{}r)
	{
		return $name eq 'any' ? 'JSON' : "[$name](#object-$name)";
	}
	return join ' or ', map { type_of($_) } @{ $schema->{anyOf} } if $schema->{anyOf};
	return join ', ', map { "`$_`" } grep { defined } @{ $schema->{enum} } if $schema->{enum};
	my ($type) = ref $schema->{type} ? grep { $_ ne 'null' } @{ $schema->{type} } : $schema->{type};
	return 'null' if $type eq 'null';
	return 'list of ' . type_of($schema->{items}) if $type eq 'array' && $schema->{items};
	my %names = (uuid => 'uuid', 'date-time' => 'time', interval => 'interval');
	return $names{ $schema->{format} // '' } // $type;
}

sub range
{
	my ($schema) = @_;
	my ($from, $to) = defined $schema->{minimum} ? @$schema{qw(minimum maximum)} : ();

	return defined $from ? ", $from to $to" : '';
}

sub argument
{
	my ($name, $schema, $required, $place) = @_;
	my $default = $schema->{default};

	$default = ref $default ? JSON::PP->new->canonical->encode($default) : $default if defined $default;
	return "`$name` (" . type_of($schema) . range($schema) . ($place eq 'body' ? '' : ", $place") . ($required ? ', required' : '')
	  . (defined $default && $default ne '' && !JSON::PP::is_bool($schema->{default}) ? ", default `$default`" : '') . ')';
}

sub arguments
{
	my ($operation) = @_;
	my @list = map { argument($_->{name}, $_->{schema} // $_->{content}{'application/json'}{schema}, $_->{required} && $_->{in} ne 'path', $_->{in}) }
	  @{ $operation->{parameters} // [] };
	my $body = $operation->{requestBody} ? $operation->{requestBody}{content}{'application/json'}{schema} : {};
	my %required = map { $_ => 1 } @{ $body->{required} // [] };

	push @list, map { argument($_, $body->{properties}{$_}, $required{$_}, 'body') } sort { ($required{$b} // 0) <=> ($required{$a} // 0) || $a cmp $b } keys %{ $body->{properties} // {} };
	return join ', ', @list;
}

sub answer
{
	my ($operation) = @_;
	my $content = $operation->{responses}{200}{content};
	my ($type) = grep { $_ eq 'application/json' } keys %$content;

	return join ' or ', map { "`$_`" } sort keys %$content if !$type;
	my $schema = $content->{$type}{schema};
	return 'items of ' . type_of($schema->{properties}{items}{items}) . ', `next`' if $schema->{properties};
	return type_of($schema);
}

my $status_list = join '', map { bullet("**$_**: $api->{components}{responses}{$_}{description}.") } sort keys %{ $api->{components}{responses} };
print <<"END";
<!-- Made by `make docs` from openapi.json: change src/web/routes.c and answers.c. -->
# HTTP API

@{[ fill("The operations of [jobq-web](web-operations.md), as `GET /api/v1/openapi.json` describes them to programs. $api->{info}{description}") ]}
@{[ fill("Arguments are members of a JSON object in the body, unless they are in the path or the query string. Lists are `{items, next}`: `next` is the `cursor` of the next page, null after the last one. Descriptions of the arguments are in the [reference](reference/README.md) of the functions.") ]}
@{[ fill("Sign in with Basic, or with the cookie of a session. With the cookie, methods other than GET need `Origin` and `X-Csrf-Token`.") ]}
## Statuses

@{[ fill('200, or an error of RFC 9457. Every operation may answer ' . join(', ', @always) . '; with sign-in ' . join(' and ', @signed) . '; where it asks PostgreSQL ' . join(', ', @run) . '. The others are named with it.') ]}
$status_list
END

my %by_tag;
foreach my $path (sort keys %{ $api->{paths} })
{
	foreach my $method (grep { $api->{paths}{$path}{$_} } qw(get post put patch delete))
	{
		my $operation = $api->{paths}{$path}{$method};

		push @{ $by_tag{ $operation->{tags}[0] } }, [ uc $method, $path, $operation ];
	}
}
foreach my $tag (@{ $api->{tags} })
{
	print "## $tag->{name}\n\n", fill("$tag->{description}.");
	foreach (@{ $by_tag{ $tag->{name} } })
	{
		my ($method, $path, $operation) = @$_;
		my $arguments = arguments($operation);
		my $statuses = join ', ', grep { $_ ne '200' && !$common{$_} } sort keys %{ $operation->{responses} };

		print "\n### $method $path\n\n", fill("$operation->{summary}." . (@{ $operation->{security} } ? '' : ' Without sign-in.')), "\n";
		print bullet("Arguments: $arguments") if $arguments;
		print bullet('Answer: ' . answer($operation));
		print bullet("Statuses: $statuses") if $statuses;
	}
	print "\n";
}

print "## Objects\n";
foreach my $name (sort grep { $_ ne 'any' } keys %{ $api->{components}{schemas} })
{
	my $schema = $api->{components}{schemas}{$name};
	my %required = map { $_ => 1 } @{ $schema->{required} // [] };
	my @members = $schema->{required} ? (@{ $schema->{required} }, sort grep { !$required{$_} } keys %{ $schema->{properties} }) : ();

	print "\n### Object `$name`\n\n";
	print fill($schema->{properties} ? join(', ', map { "`$_` (" . type_of($schema->{properties}{$_}) . ($required{$_} ? '' : ', may be missing') . ')' } @members)
		: type_of($schema));
}
