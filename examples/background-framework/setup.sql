-- The tables of the service.  Job types and schedules are made by `framework.js define`.
\set ON_ERROR_STOP 1
-- Claimed jobs count: two batches of 32 are 64.
ALTER DATABASE :"DBNAME" SET jobq.max_concurrent = 200;
-- An alert of a critical type is a job of this type.
ALTER DATABASE :"DBNAME" SET jobq.alert_job_type = 'notification.push';
SELECT jobq.reload() \g /dev/null

CREATE TABLE memories (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  user_id    int NOT NULL,
  topic      text NOT NULL,
  content    text NOT NULL,
  weight     int NOT NULL DEFAULT 1,
  embedding  real[]
);
CREATE TABLE patterns (word text PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE sessions (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  user_id     int NOT NULL,
  expires_at  timestamptz NOT NULL
);
CREATE TABLE reports (made_at timestamptz NOT NULL DEFAULT now(), kind text NOT NULL, data jsonb NOT NULL);
CREATE TABLE embedding_failures (at timestamptz NOT NULL DEFAULT now(), texts int NOT NULL, error text NOT NULL);
CREATE TABLE webhooks (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  url         text NOT NULL,
  secret      text NOT NULL,
  active      boolean NOT NULL DEFAULT true,
  off_reason  text
);
CREATE TABLE webhook_deliveries (
  webhook_id   bigint NOT NULL REFERENCES webhooks,
  delivery     text NOT NULL,         -- the id of the job
  attempt      int NOT NULL,
  status       int,                   -- NULL: no answer
  error        text,
  duration_ms  int NOT NULL,
  at           timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON webhook_deliveries (webhook_id, at);
