-- Quotas of tenants: src/enqueue/quota.c.
CREATE TABLE jobq.tenant_quotas (
  tenant               text NOT NULL PRIMARY KEY,
  max_live             int8,               -- NULL: no limit, here and below
  max_bytes            int8,
  enqueues_per_minute  int4,
  max_running          int4,               -- src/limits/tenant_limit.c
  max_schedules        int4                -- schedule_limits.c
);

-- The jobs that count for a quota of max_live or max_bytes.  A row outlives its
-- job and is deleted when a later count finds it.
CREATE TABLE jobq.quota_jobs (
  tenant  text NOT NULL,                   -- of the quota
  job_id  uuid NOT NULL,
  bytes   int8 NOT NULL                    -- of its payload and metadata, rendered
);
CREATE UNIQUE INDEX quota_jobs_tenant ON jobq.quota_jobs (tenant, job_id);

SELECT pg_catalog.pg_extension_config_dump('jobq.tenant_quotas', '');

CREATE TRIGGER quotas_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.tenant_quotas
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._access_changed();
ALTER TABLE jobq.tenant_quotas ENABLE ALWAYS TRIGGER quotas_changed;
CREATE TRIGGER types_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.tenant_quotas
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._types_changed();
ALTER TABLE jobq.tenant_quotas ENABLE ALWAYS TRIGGER types_changed;

-- Drops the count of a tenant's jobs from shared memory; removed: also that of
-- its enqueues in the last minute.
CREATE FUNCTION jobq_internal._forget_quota(tenant text, removed boolean) RETURNS void
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_forget_quota';

-- Counts the jobs of the quota in the queue, also those that open transactions
-- have enqueued: one row of quota_jobs each.  False: too many tenants have a
-- quota.
CREATE FUNCTION jobq_internal._count_queue(quota text) RETURNS boolean
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_count_queue';

-- Counts again when the transaction that sets a quota commits: until then
-- other sessions see no quota.
CREATE FUNCTION jobq_internal._quota_set() RETURNS trigger
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_quota_set';
CREATE CONSTRAINT TRIGGER quota_set AFTER INSERT ON jobq.tenant_quotas DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (coalesce(new.max_live, new.max_bytes) IS NOT NULL)
  EXECUTE FUNCTION jobq_internal._quota_set();
ALTER TABLE jobq.tenant_quotas ENABLE ALWAYS TRIGGER quota_set;

-- Counts jobs that entered the queue, or got another payload, without enqueue.
CREATE FUNCTION jobq_internal._count_for_quotas(ids uuid[]) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  quota text;
BEGIN
  FOR quota IN SELECT t.tenant FROM jobq.tenant_quotas t
                WHERE coalesce(t.max_live, t.max_bytes) IS NOT NULL ORDER BY t.tenant LOOP
    INSERT INTO jobq.quota_jobs AS j (tenant, job_id, bytes)
    SELECT quota, q.id, octet_length(q.payload::text) + coalesce(octet_length(q.metadata::text), 0) FROM jobq.queue q
     WHERE (q.tenant = quota OR starts_with(q.tenant, quota || '/')) AND q.id = ANY (ids)
    ON CONFLICT (tenant, job_id) DO UPDATE SET bytes = excluded.bytes WHERE j.bytes <> excluded.bytes;
    IF FOUND THEN
      PERFORM jobq_internal._forget_quota(quota, false);
    END IF;
  END LOOP;
END $$;

-- Admits a job that this transaction has put into the queue.  Raises 53400
-- when it exceeds a quota, 53100 when the disk is full.
CREATE FUNCTION jobq_internal._admit(id uuid) RETURNS void
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_admit';

CREATE FUNCTION jobq.set_tenant_quota(
  tenant text, max_live bigint DEFAULT NULL, max_bytes bigint DEFAULT NULL, enqueues_per_minute int DEFAULT NULL,
  max_running int DEFAULT NULL, max_schedules int DEFAULT NULL)
  RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._set_tenant_quota(caller oid,
  tenant text, max_live bigint, max_bytes bigint, enqueues_per_minute int, max_running int,
  max_schedules int)
  RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  counts boolean;  -- jobs of the tenant are counted when they are enqueued
BEGIN
  PERFORM jobq_internal._check_not_null('tenant', _set_tenant_quota.tenant IS NOT NULL);
  PERFORM jobq_internal._check_tenant(_set_tenant_quota.tenant);
  IF _set_tenant_quota.tenant = '' THEN
    PERFORM jobq_internal._bad('22023',
      'argument "tenant": "" is empty', 'Jobs without a tenant have no quota.');
  END IF;
  PERFORM jobq_internal._check_number('max_live', _set_tenant_quota.max_live, 0, 9223372036854775807);
  PERFORM jobq_internal._check_number('max_bytes', _set_tenant_quota.max_bytes, 0, 9223372036854775807);
  PERFORM jobq_internal._check_number('enqueues_per_minute', _set_tenant_quota.enqueues_per_minute, 0, 2147483647);
  PERFORM jobq_internal._check_number('max_running', _set_tenant_quota.max_running, 0, 2147483647);
  PERFORM jobq_internal._check_number('max_schedules', _set_tenant_quota.max_schedules, 0, 2147483647);
  LOCK TABLE jobq.tenant_quotas IN SHARE ROW EXCLUSIVE MODE;
  DELETE FROM jobq.tenant_quotas t WHERE t.tenant = _set_tenant_quota.tenant;
  counts := coalesce(_set_tenant_quota.max_live, _set_tenant_quota.max_bytes, _set_tenant_quota.enqueues_per_minute) IS NOT NULL;
  IF counts OR coalesce(_set_tenant_quota.max_running, _set_tenant_quota.max_schedules) IS NOT NULL THEN
    PERFORM jobq_internal._check_tenant_path(_set_tenant_quota.tenant);
  END IF;
  IF NOT counts THEN
    PERFORM jobq_internal._forget_quota(_set_tenant_quota.tenant, true);
  END IF;
  IF counts OR coalesce(_set_tenant_quota.max_running, _set_tenant_quota.max_schedules) IS NOT NULL THEN
    INSERT INTO jobq.tenant_quotas (tenant, max_live, max_bytes, enqueues_per_minute, max_running, max_schedules)
    VALUES (_set_tenant_quota.tenant, _set_tenant_quota.max_live, _set_tenant_quota.max_bytes, _set_tenant_quota.enqueues_per_minute,
            _set_tenant_quota.max_running, _set_tenant_quota.max_schedules);
  END IF;
  IF counts AND NOT jobq_internal._count_queue(_set_tenant_quota.tenant) THEN
    PERFORM jobq_internal._bad('53400',
      pg_catalog.format('tenant "%s" cannot have a quota: 1024 tenants of this server have one',
                        _set_tenant_quota.tenant),
      'jobq.set_tenant_quota(tenant) removes one.');
  END IF;
  -- last: a session with the tenant's lock may wait for these rows
  IF coalesce(_set_tenant_quota.max_live, _set_tenant_quota.max_bytes) IS NULL THEN
    DELETE FROM jobq.quota_jobs j WHERE j.tenant = _set_tenant_quota.tenant;
  END IF;
END $$;
