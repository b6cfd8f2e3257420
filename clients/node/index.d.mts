/** A number of seconds (5000 is refused: milliseconds), or an interval of PostgreSQL: '1 hour'. */
export type Duration = number | string;
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };

/** A client or pool of node-pg, or anything else with its query(). */
export interface Queryable {
  query(text: string, values?: unknown[]): Promise<{ rows: any[] }>;
}

export interface EnqueueOptions {
  priority?: number;
  delay?: Duration;
  scheduledFor?: Date | string;
  maxAttempts?: number;
  timeout?: Duration;
  backoff?: { type?: 'exponential' | 'fixed'; base?: Duration; max?: Duration; jitter?: number };
  uniqueKey?: string;
  onConflict?: 'ignore' | 'replace' | 'error';
  uniqueFor?: Duration;
  concurrencyKey?: string;
  keepCompleted?: Duration;
  keepDead?: Duration;
  tenant?: string;
  metadata?: unknown;
  /** The trace context of the caller, as W3C writes it: a key of the metadata. */
  traceparent?: string;
  /** Ids of jobs to wait for. */
  after?: string[];
  /** When their ends release the job. */
  afterRule?: 'success' | 'done' | 'any' | 'failed';
}

/** Enqueues a job in the transaction of the client; returns its id. */
export function enqueue<Payload = unknown>(
  client: Queryable, type: string, payload?: Payload, options?: EnqueueOptions): Promise<string>;

/** Enqueues a job for each payload; returns the ids in their order. */
export function enqueueMany<Payload = unknown>(
  client: Queryable, type: string, payloads: Payload[],
  options?: Omit<EnqueueOptions, 'uniqueKey' | 'uniqueFor' | 'onConflict'>): Promise<string[]>;

/** The options of pg.Client for a connection URI; of one with several hosts, for the first. */
export function clientOptions(dsn: string | object): object;

export class Job<Payload = any, Data = any> {
  readonly id: string;
  readonly type: string;
  readonly payload: Payload;
  /** Attempts charged, this one included. */
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly tenant: string | null;
  readonly metadata: any;
  /** metadata.traceparent, the trace context of the enqueue, or null. */
  readonly traceparent: string | null;
  /** The data that the last attempt stored with progress() or checkpoint(), or null. */
  readonly progressData: Data | null;
  readonly leaseToken: string;
  /** The end of the job's timeout; heartbeats do not move it. */
  readonly deadline: Date | null;
  /** Aborted with a Stopped when the job is cancelled, lost, or the worker stops. */
  readonly signal: AbortSignal;
  /** Stores progress (0 to 100) and data for the next attempt; throws Stopped if it was stopped. */
  progress(percent: number | null, data?: Data): Promise<void>;
  /** Stores data for the next attempt; then throws Stopped if the job was stopped. */
  checkpoint(data: Data, percent?: number): Promise<void>;
  /** Adds an event to the job's timeline. */
  log(message: string, options?: { level?: string; type?: string; data?: unknown }): Promise<void>;
  /** Completes the job in the client's transaction. Throws LeaseLost if the job is lost. */
  complete(client: Queryable, result?: unknown): Promise<void>;
}

export interface FailureOptions {
  code?: string | number;
  details?: unknown;
  retryAfter?: Duration;
  cause?: unknown;
}

export class Failure extends Error {
  constructor(message: string, options?: FailureOptions);
  readonly code?: string | number;
  readonly details?: unknown;
  readonly retryAfter?: Duration;
}
/** A failure that is not retried. */
export class Permanent extends Failure {
  readonly retryable: false;
}
/** A failure that is retried while attempts are left. */
export class Retry extends Failure {
  readonly retryable: true;
}
/** Ends the attempt: the job is skipped. */
export class Skip extends Error {
  readonly reason: string | null;
  readonly result?: unknown;
  constructor(reason?: string | null, result?: unknown);
}
/** Ends the attempt without charge: the job waits for the delay. */
export class Snooze extends Error {
  readonly delay: Duration;
  readonly reason: string | null;
  constructor(delay: Duration, reason?: string | null);
}
/** The reason of Job.signal. */
export class Stopped extends Error {
  readonly reason: 'cancel' | 'lost' | 'shutdown';
}

/** The token is no longer valid: another worker may have the job. */
export class LeaseLost extends Stopped {}

export type Outcome = 'completed' | 'failed' | 'skipped' | 'snoozed' | 'cancelled' | 'lost' | 'released';

export interface LogEntry {
  event: string;
  ts: string;
  level: string;
  [field: string]: unknown;
}

export interface WorkerOptions {
  /** Handlers at once in this process (1); a batch counts as one. */
  concurrency?: number;
  /** Jobs claimed ahead, which wait in this process until a handler is free (0). */
  prefetch?: number;
  /** Seconds of a lease (120); heartbeats are sent each third of it. */
  lease?: number;
  /** Seconds between claims when nothing else wakes the worker (1). */
  poll?: number;
  /** Seconds that running jobs have after stop() (30). */
  grace?: number;
  /** A direct connection that listens; claims do not wait then. */
  listenDsn?: string | object | null;
  /** The first DSN is a pooler in transaction mode. */
  pooler?: boolean;
  /** The worker's name in jobq.jobs (host:pid). */
  name?: string;
  /** Gets each log entry; the default writes a line of JSON to stderr. */
  log?: (entry: LogEntry) => void;
  /** Called around each job; run() resolves to the outcome. For spans of OpenTelemetry. */
  around?: (job: Job, run: () => Promise<Outcome>) => Promise<unknown>;
  /** Signals that begin a graceful stop (SIGTERM, SIGINT). */
  signals?: string[];
}

export type Handler<Payload = any, Result = any> = (job: Job<Payload>) => Result | Promise<Result>;
export type BatchHandler<Payload = any, Result = any> =
  (jobs: Job<Payload>[]) => (Result | Error)[] | void | Promise<(Result | Error)[] | void>;

export class Worker {
  constructor(dsn?: string | object, options?: WorkerOptions);
  handler<Payload = any, Result = any>(
    type: string, handler: BatchHandler<Payload, Result>, options: { batch: number; concurrency?: number }): this;
  handler<Payload = any, Result = any>(
    type: string, handler: Handler<Payload, Result>, options?: { concurrency?: number }): this;
  /**
   * Works until a signal or stop(), and ten seconds beyond the grace at most. Rejects when the
   * server refuses the claim.
   */
  run(): Promise<void>;
  /** For tests: works until no job is due and no handler runs; leaves jobs that wait for a time. */
  runUntilEmpty(): Promise<void>;
  /** Begins a graceful stop; the second call ends the grace. */
  stop(): void;
}
