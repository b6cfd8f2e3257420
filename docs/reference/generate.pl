#!/usr/bin/env perl
# Writes the pages of docs/reference from the templates in docs/reference/src and the
# catalog of a database with jobq.
#
#   generate.pl OUTDIR        connects as a superuser, by psql and its environment (PGHOST, ...)
#
# The database must belong to a throwaway cluster: the script creates roles and job types there.
# `make docs` runs it (test/reference.pl).  A template is Markdown; a line that is a directive is
# replaced:
#
#   {{function NAME}}   signature, arguments, errors, right of jobq.NAME, from COMMENT ON FUNCTION
#   {{options}}         keys of jobq.option_keys; the lines up to {{end}} link each key:
#                       "key, key: [page](link)"
#   {{settings}}        settings jobq.* from pg_settings
#   {{columns NAME}}    columns of jobq.NAME, from COMMENT ON COLUMN
#   {{index}}           all functions in alphabetical order, with their pages
#
# Each public function, one of schema jobq without a leading underscore, must have one directive.

use strict;
use warnings;
use FindBin;
use JSON::PP;
use Text::Wrap ();

$Text::Wrap::columns = 101;
$Text::Wrap::huge = 'overflow';
$Text::Wrap::break = qr/ /;

my $out = shift // die "usage: generate.pl OUTDIR\n";

# Returns what a SQL script selects, one JSON value.
sub ask
{
	my ($sql) = @_;

	open(my $psql, '-|', 'psql', '-X', '-q', '-At', '-v', 'ON_ERROR_STOP=1', '-c', "SET client_min_messages = error; $sql")
	  or die "psql: $!";
	my $answer = do { local $/; <$psql> };
	close($psql) or die "psql failed\n";
	return $answer =~ /\S/ ? JSON::PP->new->decode($answer) : undef;
}

# Roles with each access, a job type with defaults only, and one with a run_as: their
# privileges and row are the facts.
ask(q{
  DO $$
  DECLARE
    access text;
  BEGIN
    CREATE FUNCTION public.reference() RETURNS void LANGUAGE sql AS '';
    CREATE ROLE reference_run_as LOGIN;
    PERFORM jobq.create_job_type('defaults', 'public.reference()');
    PERFORM jobq.create_job_type('run_as', 'public.reference()', run_as => 'reference_run_as');
    FOREACH access IN ARRAY '{enqueue,work,read,admin}'::text[] LOOP
      EXECUTE format('CREATE ROLE reference_tenant_%s', access);
      EXECUTE format('CREATE ROLE reference_all_%s', access);
      PERFORM jobq.grant_access(format('reference_tenant_%s', access)::regrole, access, tenant => 'acme');
      PERFORM jobq.grant_access(format('reference_all_%s', access)::regrole, access);
    END LOOP;
  END $$ });

my %functions = map { $_->{name} => $_ } @{ ask(q{
  SELECT json_agg(json_build_object('name', p.proname, 'result', pg_get_function_result(p.oid),
           'comment', obj_description(p.oid, 'pg_proc'),
           'args', (SELECT coalesce(json_agg(json_build_object('name', n.name, 'type', format_type(p.proargtypes[n.i - 1], NULL),
                             'default', pg_get_function_arg_default(p.oid, n.i::int)) ORDER BY n.i), '[]')
                      FROM unnest(p.proargnames[1:p.pronargs]) WITH ORDINALITY n(name, i)),
           'public', has_function_privilege('public', p.oid, 'EXECUTE'),
           'roles', (SELECT coalesce(json_agg(replace(r.rolname, 'reference_', '') ORDER BY r.oid), '[]') FROM pg_roles r
                      WHERE r.rolname ~ '^reference_' AND has_function_privilege(r.oid, p.oid, 'EXECUTE'))) ORDER BY p.proname)
    FROM pg_proc p WHERE p.pronamespace = 'jobq'::regnamespace AND p.proname !~ '^_' }) };
my $type_defaults = ask(q{SELECT to_json(t) FROM jobq.job_types t WHERE name = 'defaults'});
my (%page_of, @pages);

sub fill { return Text::Wrap::wrap('', '', $_[0]) . "\n"; }
sub bullet { return Text::Wrap::wrap('- ', '  ', $_[0]) . "\n"; }

# Puts names of functions, settings, arguments and columns, and quoted words, into code font.
sub marked
{
	my ($text) = @_;

	$text =~ s/(\w+ => '[^']*'|\w+\([^()]*::[^()]*\)|\{[a-z_,]+\}|(?<!\w)'[\w\/]*'|"\w+"
		|(?<![\w.])(?:(?:jobq|options)\.[a-z_]+|[a-z]+(?:_[a-z]+)+)\*?(?:\(\))?)/`$1`/gx;
	return $text;
}

sub default_text
{
	my ($function, $arg) = @_;
	my $default = $arg->{default} // return undef;

	$default =~ s/::[a-z ]+(?:\[\])?$//;
	if ($function->{name} eq 'create_job_type' && $default eq 'NULL' && exists $type_defaults->{ $arg->{name} })
	{
		my $value = $type_defaults->{ $arg->{name} };

		return undef if $arg->{name} =~ /^(?:handler|command|run_as)$/;
		return 'NULL' if !defined $value;
		return '{}' if ref $value eq 'HASH';
		return $value ? 'true' : 'false' if JSON::PP::is_bool($value);
		return $value;
	}
	return $default;
}

# A comment as {summary, arguments => [[[names], text]], errors}; the head of
# src/sql/90_comments.sql has the form.
sub parsed
{
	my ($function) = @_;
	my %parts = (summary => '', arguments => []);
	my $names = join('|', map { $_->{name} } @{ $function->{args} }) || ' ';
	my $comment = $function->{comment} // die "jobq.$function->{name} has no comment\n";

	$comment =~ s/\n  / /g;
	foreach my $line (split /\n/, $comment)
	{
		if ($line =~ /^Errors: (.*)$/) { $parts{errors} = $1; }
		elsif ($line =~ /^((?:(?:$names), )*(?:$names)): (.*)$/) { push @{ $parts{arguments} }, [ [ split /, /, $1 ], $2 ]; }
		else { $parts{summary} .= ($parts{summary} eq '' ? '' : ' ') . $line; }
	}
	die "the comment of jobq.$function->{name} has no line \"Errors:\"\n" if !defined $parts{errors};
	my $said = join(' ', map { @{ $_->[0] } } @{ $parts{arguments} });
	my $has = join(' ', map { $_->{name} } @{ $function->{args} });
	die "the comment of jobq.$function->{name} has the arguments ($said), the function ($has)\n"
	  if join(' ', sort split / /, $said) ne join(' ', sort split / /, $has);
	return \%parts;
}

sub signature
{
	my ($function) = @_;
	my @args = map { "$_->{name} $_->{type}" . (defined $_->{default} ? ' DEFAULT ' . $_->{default} =~ s/::[a-z ]+(?:\[\])?$//r : '') }
	  @{ $function->{args} };
	my $text = "jobq.$function->{name}(" . join(', ', map { s/ /\0/gr } @args) . ") RETURNS\0$function->{result}";

	return Text::Wrap::wrap('', '  ', $text) =~ tr/\0/ /r . "\n";
}

sub right
{
	my ($function) = @_;
	my %has = map { $_ => 1 } @{ $function->{roles} };
	my @rights = map { $has{"tenant_$_"} ? "`$_`" : $has{"all_$_"} ? "`$_` of all tenants" : () } qw(enqueue work read admin);

	return 'every role.' if $function->{public};
	return 'granted to `run_as` of every job type' . (@rights ? ', and access ' . join(', ', @rights) : '') . '.' if $has{run_as};
	return 'access ' . join(' or ', @rights) . '.' if @rights;
	return 'superusers, the owner of the extension, and roles with a `GRANT EXECUTE` of the function.';
}

sub function_text
{
	my ($name, $page) = @_;
	my $function = $functions{$name} // die "$page: there is no function jobq.$name\n";
	my $parts = parsed($function);
	my %args = map { $_->{name} => $_ } @{ $function->{args} };
	my $text = "## `jobq.$name`\n\n" . fill(marked($parts->{summary})) . "\n```\n" . signature($function) . "```\n\n";

	die "$page: jobq.$name is also in $page_of{$name}\n" if $page_of{$name};
	$page_of{$name} = $page;
	foreach my $entry (@{ $parts->{arguments} })
	{
		my $names = join(', ', map {
				my $default = default_text($function, $args{$_});
				"`$_` ($args{$_}{type}" . (defined $default ? ", default `$default`)" : ')')
			} @{ $entry->[0] });
		$text .= bullet("$names: " . marked($entry->[1]));
	}
	$text .= "\n" if @{ $parts->{arguments} };
	my @errors = split /(?<=\.) (?=[0-9A-Z]{5}\b)/, $parts->{errors};
	if (@errors == 1 && $errors[0] !~ /^[0-9A-Z]{5}\b/)
	{
		$text .= fill('Errors: ' . marked($errors[0]) =~ s/those of every function/[those of every function](errors.md#every-function)/r);
	}
	else
	{
		$text .= "Errors, beside [those of every function](errors.md#every-function):\n\n";
		$text .= bullet(marked($_) =~ s/^((?:[0-9A-Z]{5}(?:, | and )?)+)/`$1`:/r =~ s/:[:,]/:/r) foreach @errors;
	}
	return $text . "\n" . fill('Right: ' . right($function));
}

sub options_text
{
	my ($links) = @_;
	my (%link, $text);

	while ($links =~ /^([a-z_, ]+): (.*)$/mg)
	{
		my ($keys, $to) = ($1, $2);
		$link{$_} = $to foreach split /, /, $keys;
	}
	foreach my $o (@{ ask('SELECT json_agg(o) FROM jobq.option_keys o') })
	{
		my $to = delete $link{ $o->{key} } // die "option $o->{key} has no link\n";
		my $default = defined $o->{default_value} ? "default `$o->{default_value}`" : 'no default';

		$text .= bullet("`$o->{key}` ($o->{kind}: $o->{type}, $default): " . marked($o->{meaning}) . ". $to");
	}
	die "no option: @{[ keys %link ]}\n" if %link;
	return $text;
}

my %context = (
	postmaster => 'server start',
	sighup => 'configuration file, at reload',
	superuser => 'superuser: server, database or session',
	user => 'every session');

sub settings_text
{
	my $text = '';

	foreach my $s (@{ ask(q{SELECT json_agg(json_build_object('name', name, 'default', current_setting(name), 'type', vartype,
	                          'unit', unit, 'min', min_val, 'max', max_val, 'values', enumvals, 'context', context,
	                          'short', short_desc, 'extra', extra_desc) ORDER BY name)
	                   FROM pg_settings WHERE name LIKE 'jobq.%'}) })
	{
		my $range = $s->{values} ? join(', ', map { "`$_`" } @{ $s->{values} })
		  : defined $s->{min} ? "$s->{min} to $s->{max}" . ($s->{unit} ? " $s->{unit}" : '') : $s->{type};
		my $default = $s->{default} eq '' ? "''" : $s->{default};

		$text .= bullet("`$s->{name}` ($range, default `$default`; $context{ $s->{context} }): "
			  . marked(join(' ', grep { defined } $s->{short}, $s->{extra})));
	}
	return $text;
}

sub columns_text
{
	my ($relation) = @_;
	my $text = '';

	foreach my $c (@{ ask(qq{SELECT json_agg(json_build_object('name', attname, 'type', format_type(atttypid, atttypmod),
	                         'comment', coalesce(col_description(attrelid, attnum), '')) ORDER BY attnum)
	                  FROM pg_attribute WHERE attrelid = 'jobq.$relation'::regclass AND attnum > 0 AND NOT attisdropped}) })
	{
		$text .= bullet("`$c->{name}` ($c->{type}): " . marked($c->{comment}));
	}
	return $text;
}

sub index_text
{
	my $text = '';

	foreach my $name (sort keys %functions)
	{
		my ($first) = parsed($functions{$name})->{summary} =~ /^(.*?[.:])(?: |$)/;

		$text .= bullet("[`jobq.$name`]($page_of{$name}#jobq$name): " . marked($first =~ s/:$/./r));
	}
	return $text;
}

sub page
{
	my ($name) = @_;
	open(my $template, '<', "$FindBin::Bin/src/$name") or die "$name: $!";
	my $text = do { local $/; <$template> };

	$text =~ s/^\{\{options\}\}\n(.*?)^\{\{end\}\}\n/options_text($1)/mse;
	$text =~ s/^\{\{function (\w+)\}\}\n/function_text($1, $name)/mge;
	$text =~ s/^\{\{columns (\w+)\}\}\n/columns_text($1)/mge;
	$text =~ s/^\{\{settings\}\}\n/settings_text()/me;
	$text =~ s/^\{\{index\}\}\n/index_text()/me;
	die "$name: unknown directive $1\n" if $text =~ /^(\{\{.*)$/m;
	open(my $page, '>', "$out/$name") or die "$out/$name: $!";
	print $page "<!-- Made by `make docs` from src/$name and the catalog: change those. -->\n$text";
	close($page) or die "$out/$name: $!";
	return;
}

my @templates = map { m{([^/]+)$} } glob("$FindBin::Bin/src/*.md");
page($_) foreach (grep { $_ ne 'README.md' } @templates), 'README.md';
my @missing = grep { !$page_of{$_} } sort keys %functions;
die "on no page: @missing\n" if @missing;
