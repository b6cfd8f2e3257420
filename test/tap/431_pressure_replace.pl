# Replacing a signal's condition: the new condition runs at once, and a result of
# the former one does not count.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('replaced', 'fsync = off');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub create { return sql("SELECT jobq.create_signal('s', \$\$$_[0]\$\$, '1 day', on_conflict => 'replace')"); }

create('true');
wait_for_sql($node, 'SELECT active FROM jobq.signals', 'a new signal is asked');
create('false');
wait_for_sql($node, 'SELECT NOT active FROM jobq.signals', 'a condition that is replaced is asked at once, not in a day');

# the former condition runs while it is replaced
my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
create('SELECT true FROM pg_advisory_xact_lock_shared(1)');
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'a condition waits');
create('1 / (SELECT count(*) FROM pg_class WHERE false) > 0');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
$gate->quit;
wait_for_sql($node, "SELECT problem LIKE 'division by zero%' FROM jobq.signals", 'the one in its place is asked after it');
is(sql('SELECT active FROM jobq.signals'), 'f', 'and the result of the former one is not written');

# A rule for a signal that an older snapshot drops: it never stays behind.
state_function($node);
sql(<<'END');
SELECT jobq.set_signal('ruled', false), jobq.create_job_type('t');
END
my $old = $node->background_psql('postgres');
foreach my $arguments (q{'ruled'}, q{'ruled', force => true})
{
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
	sql(q{SELECT jobq.set_pressure_rule('t', 'ruled', 5)});
	is($old->query_safe("SELECT state_of(\$\$SELECT jobq.drop_signal($arguments)\$\$)"), '40001', "drop_signal($arguments) with a snapshot older than a rule");
	$old->query_safe('ROLLBACK');
	sql(q{SELECT jobq.set_pressure_rule('t', 'ruled')});
}
is($old->query_safe(q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT state_of($$SELECT jobq.drop_signal('ruled')$$)}), 'done', 'without rules it is dropped');
$old->query_safe('COMMIT');
is(sql('SELECT count(*) FROM jobq.pressure_rules'), '0', 'no rule is left');
$old->quit;

done_testing();
