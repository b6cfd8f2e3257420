
-- Disk usage: src/maintenance/disk_watch.c measures and decides, once a
-- minute.
CREATE TABLE jobq.disk_log (
  ts           timestamptz   NOT NULL DEFAULT clock_timestamp(),
  path         text          NOT NULL,      -- a directory in the file system
  total_bytes  int8          NOT NULL,      -- available to the server, used or free
  used_bytes   int8          NOT NULL,
  percent      numeric(5, 2) NOT NULL,
  level        text          NOT NULL CHECK (level IN ('ok', 'warning', 'critical', 'emergency'))
);
CREATE INDEX disk_log_path ON jobq.disk_log (path, ts);

-- Adds a reading and keeps the last 1,000 of the file system.  Returns the
-- level before; NULL: this is the first.
CREATE FUNCTION jobq_internal._log_disk(path text, total_bytes int8, used_bytes int8, percent float8, level text) RETURNS text
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  before text := (SELECT d.level FROM jobq.disk_log d WHERE d.path = _log_disk.path ORDER BY d.ts DESC LIMIT 1);
BEGIN
  -- all file systems of a pass have one time
  INSERT INTO jobq.disk_log (ts, path, total_bytes, used_bytes, percent, level)
  VALUES (transaction_timestamp(), _log_disk.path, _log_disk.total_bytes, _log_disk.used_bytes, _log_disk.percent, _log_disk.level);
  DELETE FROM jobq.disk_log d
   WHERE d.path = _log_disk.path
     AND d.ts <= (SELECT o.ts FROM jobq.disk_log o WHERE o.path = _log_disk.path
                   ORDER BY o.ts DESC OFFSET 1000 LIMIT 1);
  RETURN before;
END $$;
