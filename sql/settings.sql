-- The settings: names, defaults, ranges, rights to change them, refused values
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all
SELECT name, boot_val, unit, min_val, max_val, context FROM pg_settings WHERE name LIKE 'jobq.%' ORDER BY name COLLATE "C";
SELECT name FROM pg_settings WHERE name LIKE 'jobq.%' AND (short_desc !~ '^[A-Z].*\.$' OR extra_desc !~ '\.$');
-- a database may have its own, except of settings of the whole server
SELECT current_database() AS db \gset
ALTER DATABASE :"db" SET jobq.max_concurrent = 7;
ALTER DATABASE :"db" SET jobq.tool_path = '/opt/bin';
ALTER DATABASE :"db" SET jobq.databases = '-';
ALTER DATABASE :"db" SET jobq.allow_exec_under_pid1 = on;
ALTER DATABASE :"db" SET jobq.max_lanes = 100;
\c
SHOW jobq.max_concurrent;
ALTER DATABASE :"db" RESET jobq.max_concurrent;
ALTER DATABASE :"db" RESET jobq.tool_path;
\c
SHOW jobq.max_concurrent;
-- out of range
\set VERBOSITY sqlstate
SET jobq.max_concurrent = 0;
SET jobq.max_sql_workers = -1;
SET jobq.sweep_interval = '1ms';
SET jobq.max_payload = '1GB';
-- values of the wrong form
\set VERBOSITY default
SET jobq.tool_path = 'bin:/usr/bin';
SET jobq.tool_path = '/bin:';
SET jobq.tool_path = '';
SET jobq.tool_env_file = 'secrets';
SET jobq.notify_prefix = 'a prefix that is far too long';
SET jobq.notify_prefix = E'bad\n';
SET jobq.job_type_filter = 'mail,,-report';
SET jobq.job_type_filter = 'mail, -';
SET jobq.job_type_filter = 'mail, send report';
SET jobq.tenant = E'a\tb';
SET jobq.no_such_setting = 1;
-- valid values
SET jobq.tool_path = '/opt/a b:/bin';
SET jobq.tool_env_file = '/etc/jobq.env';
SET jobq.notify_prefix = '';
SET jobq.job_type_filter = 'mail, -report:daily, größe';
SET jobq.job_type_filter = ' ';
SET jobq.max_payload = '2MB';
SHOW jobq.max_payload;
-- a role without superuser rights may set only jobq.tenant
CREATE ROLE jobq_test_user;
SET ROLE jobq_test_user;
SET jobq.tenant = 'acme';
SHOW jobq.tenant;
\set VERBOSITY sqlstate
SET jobq.max_payload = '2MB';
SHOW jobq.tool_path;
RESET ROLE;
DROP ROLE jobq_test_user;
