-- jobq.next_runs: refused arguments
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all
\pset format unaligned
\pset tuples_only on

-- fields
SELECT cron || ' | ' || test.error_of(format('SELECT jobq.next_runs(%L)', cron))
  FROM (VALUES ('60 * * * *'), ('* 24 * * *'), ('* * 32 * *'), ('* * 0 * *'), ('* * * 13 *'), ('* * * 0 *'), ('* * * * 8'),
    ('60 * * * * *'), ('0-60 * * * *'), ('1,2,99 * * * *'), ('99999999999999999999 * * * *'), ('-1 * * * *'), ('1- * * * *'),
    ('*/0 * * * *'), ('*/61 * * * *'), ('* */25 * * *'), ('*/ * * * *'), ('1/x * * * *'), ('5*/2 * * * *'), ('1.5 * * * *'),
    (', * * * *'), ('1, * * * *'), (',1 * * * *'), ('1,,2 * * * *'), ('? * * * *'), ('* ? * * *'), ('* * * ? *'), ('x * * * *'),
    ('* * * foo *'), ('* * * january *'), ('* * * * mo'), ('* * jan * *'), ('* * * mon *'), ('* * * * jan'),
    -- each field: above its highest value, step 0, an empty element; of six fields
    ('0 60 * * * *'), ('0 0 24 * * *'), ('0 0 0 32 * *'), ('0 0 0 1 13 *'), ('0 0 0 1 1 8'), ('*/0 * * * * *'), ('* */0 * * *'), ('* * */0 * *'),
    ('* * * */0 *'), ('* * * * */0'), ('*/61 * * * * *'), ('* * */32 * *'), ('* * * */13 *'), ('* * * * */8'), ('0, * * * * *'), ('* 1, * * *'), ('* * 1,,2 * *'),
    ('* * * ,1 *'), ('* * * * ,'),
    -- terms that stand alone
    ('* * 0W * *'), ('* * 32W * *'), ('* * W * *'), ('* * L-31 * *'), ('* * L- * *'), ('* * L-3W * *'), ('* * L/2 * *'), ('* * 1,L * *'),
    ('* * L,1 * *'), ('* * 15W,20 * *'), ('* * 1-15W * *'), ('* * $,$ * *'), ('* * * * L'), ('* * * * 5#0'), ('* * * * 5#6'), ('* * * * 8#1'),
    ('* * * * 8L'), ('* * * * 5#'), ('* * * * 5#1,5#3'), ('* * * * 1,5L'), ('* * * * 5#2/2'), ('* * * * 15W'), ('L * * * *'), ('* * 5L * *'),
    -- expressions
    (''), (' '), ('*'), ('* * * *'), ('0 0 0 1 1 * 2026'), ('@reboot'), ('@'), ('@every'), ('@daily 5'), (';'), ('0 0 * * *;'), (';0 0 * * *'),
    ('0 0 * * *; 0 25 * * *'), ('CRON_TZ=UTC 0 0 * * *'), ('0 15 10 * * ? *'), ('0 15 10 ? * 6L 2002-2005'), ('H * * * *'),
    ('0~30 * * * *'), ('0 0 * * * root'), ('@3'), (E'0 0 * *\u0001 *'), ('0 0 * * ä'), ('90 parsecs'),
    -- intervals
    ('every 0s'), ('every 1 month'), ('every 2 years'), ('1 mon'), ('every -5s'), ('every 0.5s'), ('every 1500ms'), ('every 5'), ('every s'),
    ('every'), ('every 1 hour and 5 minutes'), ('every 101 years'), ('every 40000 days'), ('every 1000000000000 weeks'), ('every 5:99'), ('every 1:2'),
    ('after 90s'), ('after 0s'), ('after 90s; 0 0 * * *'), ('0 0 * * *; after 90s'),
    -- no tick
    ('0 0 30 2 *'), ('0 * 31 4,6,9,11 *'), ('0 0 31W 2 *'), ('0 0 30 2 */7'), ('every 36526 days')) v(cron);

-- time zones
SELECT zone || ' | ' || test.error_of(format('SELECT jobq.next_runs(%L, %L)', '@daily', zone))
  FROM (VALUES (''), ('Europe'), ('Europe/Nowhere'), ('posix/Europe/Berlin'), ('Posix/europe/berlin'), ('right/Europe/Berlin'), ('posixrules'), ('Factory'), ('localtime'),
    ('+02'), ('UTC+3'), ('EST5EDT4'), ('FOO-3'), ('CEST'), ('PST'), ('<+03>-3'), ('../zoneinfo/UTC'), ('/etc/localtime'), (':UTC'), ('Europe/Berlin '), ('default'),
    (repeat('x', 300)), (E'a\nb')) v(zone);

-- limits, NULL, times
SELECT test.error_of(format('SELECT jobq.next_runs(%L)', repeat(' ', 1016) || '@daily;@daily'));
SELECT test.error_of(format('SELECT jobq.next_runs(%L)', repeat('1s;', 341) || 'x'));
SELECT test.error_of(format('SELECT jobq.next_runs(%L)', repeat(';', 1024)));
SELECT count(*) FROM jobq.next_runs(repeat(' ', 1018) || '@daily');
SELECT test.error_of(format('SELECT jobq.next_runs(%L)', repeat(' ', 1019) || '@daily'));
SELECT call || ' | ' || test.error_of(format('SELECT jobq.next_runs(%s)', call))
  FROM (VALUES ('''@daily'', n => 0'), ('''@daily'', n => -1'), ('''@daily'', n => 10001'), ('NULL'), ('''@daily'', NULL'), ('''@daily'', n => NULL'),
    ('''@daily'', since => NULL'), ('''@daily'', since => ''infinity'''), ('''@daily'', since => ''-infinity'''), ('''@yearly'', since => ''294276-12-31+00''')) v(call);
