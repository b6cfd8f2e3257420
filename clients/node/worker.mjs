// A worker: claims jobs, runs their handlers, keeps their leases, tells the server how they ended.
//
// It has two connections: one for claims, of which at most one waits in the server, and one for
// everything else.  With listenDsn a third one listens, and claims do not wait.  Jobs are fenced by
// their tokens; a job that could not be heartbeated for the length of its lease counts as lost.

import { hostname } from 'node:os';
import { inspect } from 'node:util';
import { Bell } from './bell.mjs';
import { Connection, Listener, Unanswered, isLost } from './connection.mjs';
import { Lease, LeaseLost, Permanent, Skip, Snooze, asError, bounded, milliseconds } from './job.mjs';
import { logLine, stamp } from './log.mjs';
import { Settlements, resultText } from './settle.mjs';

const sql = {
  connect: { name: 'jobq_connect', text: 'SELECT 1' },
  claim: {
    name: 'jobq_claim',
    text: `SELECT id, job_type, payload, attempts, max_attempts, tenant, metadata, progress_data, lease_token,
                  1000 * date_part('epoch', deadline) AS deadline_ms,
                  date_part('epoch', lease_expires_at - clock_timestamp()) AS lease_left,
                  date_part('epoch', deadline - clock_timestamp()) AS deadline_left
             FROM jobq.claim($1::text[], $2, worker => $3, lease => $4::interval, wait => $5::interval)`,
  },
  heartbeat: {
    name: 'jobq_heartbeat',
    text: `SELECT t.token, jobq.heartbeat(t.id, t.token) AS state
             FROM ${bounded(3)}, unnest($1::uuid[], $2::uuid[]) t(id, token)`,
  },
  cancelClaim: { name: 'jobq_cancel_claim', text: 'SELECT pg_cancel_backend($1)' },
};
const cancelled = '57014';
const longestWait = 20;         // seconds, of a claim
const mostJobs = 1000;          // of a claim
const stopMs = 1000;            // that a stopped handler has
const claimStopMs = 3000;       // that a claim has to end when the worker stops
const releaseMs = 4000;         // that the last releases have

export class Worker {
  #handlers = new Map();
  #leases = new Set();      // all jobs that this process has claimed and not settled
  #running = 0;             // handlers (a batch is one)
  #settling = 0;            // batches whose ends are under way
  #ahead = [];              // batches that were claimed ahead: {leases, type}
  #stopping = false;
  #connections;
  #untilEmpty = false;
  #givingUp = false;        // nothing is repeated any more
  #claiming = null;         // the claim that is under way
  #rounds = 0;              // of claims by room
  #leftOut = new Set();     // types that the waiting claim has not, because they are at their limit
  #answered = false;   // a claim was not refused
  #refused = false;    // the last claim was
  #bell = new Bell();       // there may be jobs, or room for them
  #idle = new Bell();       // a job has left
  #beating = false;
  #beatAgain = false;       // something asked for a heartbeat while one ran
  #lastBeat = 0;
  #stoppedAt = Infinity;
  #claimEnds;               // a timer
  #expiry = Infinity;       // the first end of a lease
  #expiryTimer;

  constructor(dsn, options = {}) {
    const { concurrency = 1, prefetch = 0, lease = 120, poll = 1, grace = 30, pooler = false, listenDsn = null,
      name = `${hostname()}:${process.pid}`, log = logLine, around = (job, run) => run(),
      signals = ['SIGTERM', 'SIGINT'], ...unknown } = options;

    for (const key of Object.keys(unknown)) throw new TypeError(`unknown option of Worker: ${key}`);
    for (const [key, value] of Object.entries({ concurrency, lease, poll, grace })) {
      if (!Number.isFinite(value) || value < 0 || (value === 0 && key !== 'grace')) {
        throw new RangeError(`option ${key} is out of range: ${inspect(value)}`);
      }
      if (key !== 'concurrency' && value > 3600 && milliseconds(value) !== null) throw new RangeError(`option ${key}: ${milliseconds(value)}`);
    }
    if (!Number.isInteger(prefetch) || prefetch < 0 || prefetch > mostJobs) throw new RangeError(`option prefetch is out of range: ${prefetch}`);
    Object.assign(this, { concurrency, prefetch, poll, grace, name, around, signals });
    for (const [key, value] of Object.entries({ dsn, listenDsn })) {
      if (typeof value === 'string' && !/^($|\/|\w+:\/)/.test(value)) throw new TypeError(`${key} is no URI: postgresql://user@host:5432/database`);
    }
    this.#connections = { dsn, pooler, listenDsn };
    this.leaseMs = lease * 1000;
    this.lockMs = Math.min(1000, Math.max(50, Math.round(this.leaseMs / 12)));
    this.shortLockMs = Math.ceil(this.lockMs / 5);
    this.answerMs = Math.min(30_000, Math.max(5_000, this.leaseMs / 2));
    this.log = (entry) => log({ event: entry.event, ts: stamp(), level: 'info', ...entry });
    this.settlements = new Settlements(this);
  }

  // Registers the handler of a job type.  With `batch` it gets an array of up
  // to so many jobs and returns an array with a result or an Error for each.  `concurrency` limits
  // the handlers of the type that run at once.
  handler(type, handler, options = {}) {
    const { batch = 1, concurrency = Infinity, ...unknown } = options;

    for (const key of Object.keys(unknown)) throw new TypeError(`unknown option of handler: ${key}`);
    if (typeof handler !== 'function') throw new TypeError(`the handler of job type ${type} is no function`);
    if (!Number.isInteger(batch) || batch < 1 || batch > mostJobs) throw new RangeError(`option batch is out of range: ${batch}`);
    if (!(concurrency >= 1)) throw new RangeError(`option concurrency is out of range: ${concurrency}`);
    this.#handlers.set(type, { handler, batch, many: options.batch !== undefined, concurrency, running: 0 });
    return this;
  }

  // For tests: works until no job is due and no handler runs.  Jobs that wait for a time are left.
  runUntilEmpty() {
    return this.#run(true);
  }

  // Works until a signal or stop(), then lets running jobs finish or releases them.
  run() {
    return this.#run(false);
  }

  // Connects anew: a worker may run more than once.
  #begin(untilEmpty) {
    const { dsn, pooler, listenDsn } = this.#connections;

    this.#untilEmpty = untilEmpty;
    this.#stopping = this.#givingUp = this.#answered = false;
    this.#stoppedAt = Infinity;
    this.wait = untilEmpty || pooler || listenDsn ? 0 : longestWait;
    this.calls = new Connection(dsn, this.log, !pooler);
    this.claims = new Connection(dsn, this.log, !pooler);
    this.listener = listenDsn ? new Listener(listenDsn, this.log) : null;
  }

  async #run(untilEmpty) {
    const stop = () => this.stop();
    let listening;

    if (this.#handlers.size === 0) throw new Error('the worker has no handlers');
    this.#begin(untilEmpty);
    for (const signal of this.signals) process.on(signal, stop);
    const beats = setInterval(() => this.#heartbeat(), this.leaseMs / 3);
    try {
      await this.calls.query(sql.connect, [], { again: () => !this.#stopping }).catch((error) => {
        if (!this.#stopping) throw error;
      });
      listening = this.listener?.run([...this.#handlers.keys()], () => this.#notified());
      if (!this.#stopping) this.log({ event: 'started', worker: this.name, types: [...this.#handlers.keys()] });
      await this.#work();
    } finally {
      this.#stopping = true;
      clearTimeout(this.#claimEnds);
      await this.#finish();
      clearTimeout(this.#expiryTimer);
      clearInterval(beats);
      for (const signal of this.signals) process.off(signal, stop);
      await Promise.all([this.calls, this.claims, this.listener].map((link) => link?.close()));
      await listening;
      this.log({ event: 'stopped' });
    }
  }

  // Begins a graceful stop: no further claim.  The second call ends the grace.
  stop() {
    if (this.#stopping) {
      this.#stoppedAt = -Infinity;
      this.#idle.ring();
      return;
    }
    this.#stopping = true;
    this.#stoppedAt = performance.now();
    this.log({ event: 'stopping' });
    this.#bell.ring();
    this.settlements.hurry();
    this.calls.hurry();
    this.claims.hurry();
    if (!this.#claiming) return;
    this.#cancelClaim();
    this.#claimEnds = setTimeout(() => this.claims.abort(), claimStopMs);
  }

  // Ends a claim that waits; one that has jobs is answered.  A cancel that comes before the server
  // has begun the claim is lost, so it is repeated.
  async #cancelClaim() {
    const backend = this.claims.client?.processID;
    const claim = this.#claiming;

    this.#leftOut.clear();
    if (!backend || this.wait === 0) return;
    await this.calls.query(sql.cancelClaim, [backend], { limit: claimStopMs }).catch(() => this.claims.drop());
    setTimeout(() => { if (claim !== null && this.#claiming === claim) this.#cancelClaim(); }, 100).unref();
  }

  // A statement about leases on the common connection, repeated while one of them lives and the
  // error may be repeated.
  call(statement, values, leases, mayRepeat = () => true, urgent = false) {
    return this.calls.query(statement, values, {
      again: (error) => !this.#givingUp && mayRepeat(error) && leases.some((lease) => lease.live),
      limit: this.answerMs,
      urgent,
    });
  }

  // True if handlers that end have other jobs to run.
  get hasAhead() {
    return this.#ahead.length > 0 && !this.#stopping;
  }

  // Loses leases at their local end; one timer serves all.
  watch(expires) {
    if (expires >= this.#expiry) return;
    this.#expiry = expires;
    clearTimeout(this.#expiryTimer);
    this.#expiryTimer = setTimeout(() => this.#expire(), Math.min(Math.max(1, expires - performance.now()), 2 ** 31 - 1));
  }

  #expire() {
    const now = performance.now();

    this.#expiry = Infinity;
    for (const lease of this.#leases) {
      if (lease.expires > now) this.watch(lease.expires);
      else if (lease.completed === null) lease.lose();
      else this.watch(now + 1000);    // a transaction of the handler completes it, which decides
    }
  }

  // Called by a lease that is lost.
  lost(lease) {
    this.#leases.delete(lease);
    this.#logEnd('lost', lease, { level: 'error' });
  }

  // Called by a lease whose job is cancelled: its handler may have not begun.
  cancelled(lease) {
    const batch = this.#ahead.find(({ leases }) => leases.includes(lease));

    if (batch === undefined) return;
    batch.leases.splice(batch.leases.indexOf(lease), 1);
    this.#settle(lease, new Error('cancelled before its handler began'));
  }

  // ---- claims ----

  // Handlers that may start.  Completions under way are no reason to wait, up
  // to a number; a worker with concurrency 1 runs one job at a time.
  #room() {
    return this.#settling < 2 * this.concurrency - 1 + this.prefetch ? this.concurrency - this.#running : 0;
  }

  // Jobs to claim: for the room and ahead of it.  Those ahead are filled up when half of them are
  // left.
  #appetite(perHandler) {
    const room = this.#room();
    const ahead = this.#ahead.reduce((jobs, { leases }) => jobs + leases.length, 0);

    if (room <= 0 && 2 * ahead > this.prefetch) return 0;
    return Math.max(0, room) * perHandler + this.prefetch - ahead;
  }

  async #work() {
    const batches = [...this.#handlers.values()].map(({ batch }) => batch);
    const perHandler = batches.length === 1 ? batches[0] : 1;

    while (!this.#stopping) {
      const jobs = this.#appetite(perHandler);

      if (jobs <= 0) {
        await this.#bell.wait();
        continue;
      }
      const began = performance.now();
      const idle = this.#leases.size === 0;
      const leases = await this.#claimFor(jobs);
      const waited = performance.now() - began;
      if (this.#stopping) this.#releaseAll(leases);
      else this.#start(leases);
      if (this.#untilEmpty && idle && leases.length === 0 && !this.#refused) this.stop();
      // A claim that did not wait: the server hands out nothing at all.
      if (leases.length === 0 && (this.wait === 0 || waited < 1000) && !this.#stopping) {
        await this.#bell.wait((this.#refused ? Math.max(this.poll, 1) : this.poll) * 1000);
      }
      this.#refused = false;
    }
  }

  // Claims so many jobs.  A worker with one type claims whole batches; with several, a type's first
  // jobs decide which batch is filled up.
  async #claimFor(jobs) {
    const rooms = [...this.#handlers].map(([type, handler]) => [type, this.#roomOf(type, handler)]);
    const types = rooms.filter(([, room]) => room > 0).map(([type]) => type);
    const most = Math.min(jobs, ...rooms.filter(([, room]) => room > 0).map(([, room]) => room));

    if (types.length === 0) {
      await this.#bell.wait();
      return [];
    }
    const leftOut = rooms.filter(([, room]) => room <= 0).map(([type]) => type);
    this.#leftOut = new Set(leftOut);
    const leases = await this.#claimByRoom(rooms, jobs);
    // A type that has room again has emptied #leftOut: the next round claims it, too.
    if (leases.length === 0 && !this.#stopping && this.#leftOut.size === leftOut.length) leases.push(...await this.#claim(types, most, this.wait));
    this.#leftOut.clear();
    if (this.#handlers.size === 1) return leases;
    for (const [type, { batch }] of this.#handlers) {
      const begun = leases.filter((lease) => lease.job.type === type).length % batch;
      if (begun > 0 && !this.#stopping) leases.push(...await this.#claim([type], batch - begun, 0));
    }
    return leases;
  }

  // Claims types with less room each for itself, then the others: a claim of all would give each
  // only the least room.  Each round begins with another one, because the first may take all.
  async #claimByRoom(rooms, jobs) {
    const ready = rooms.filter(([, room]) => room > 0);
    const narrow = ready.filter(([, room]) => room < jobs);
    const wide = ready.filter(([, room]) => room >= jobs).map(([type]) => type);
    const turns = [...narrow.map(([type, room]) => [[type], room]), [wide, jobs]].filter(([types]) => types.length > 0);
    const leases = [];

    if (narrow.length === 0 || ready.length === 1) return leases;
    turns.push(...turns.splice(0, this.#rounds++ % turns.length));
    for (const [types, room] of turns) {
      const most = Math.min(room, jobs - leases.length);
      if (most > 0 && !this.#stopping) leases.push(...await this.#claim(types, most, 0));
    }
    return leases;
  }

  // Jobs of the type that may be claimed, of a type with a limit of its own.
  #roomOf(type, { batch, concurrency, running }) {
    if (concurrency === Infinity) return Infinity;
    return (concurrency - running - this.#ahead.filter((ahead) => ahead.type === type).length) * (this.#handlers.size === 1 ? batch : 1);
  }

  async #claim(types, jobs, wait) {
    this.#claiming = {};
    try {
      const { rows } = await this.claims.query(sql.claim,
        [types, Math.min(jobs, mostJobs), this.name, `${this.leaseMs} milliseconds`, `${wait} seconds`],
        { again: (error) => !this.#stopping && error.code !== cancelled, limit: wait * 1000 + this.answerMs });
      const leases = rows.map((row) => new Lease(row, this));

      this.#answered = true;
      for (const lease of leases) this.#leases.add(lease);
      if (leases.length > 0) this.log({ event: 'claimed', jobs: leases.length });
      return leases;
    } catch (error) {
      if (this.#stopping || error.code === cancelled) return [];
      this.log({ event: 'claim_refused', level: 'error', error: error.message });
      if (!this.#answered) throw error;   // wrong from the start
      this.#refused = true;
      return [];
    } finally {
      this.#claiming = null;
    }
  }

  #start(leases) {
    for (const [type, { batch }] of this.#handlers) {
      const ofType = leases.filter((lease) => lease.job.type === type);
      for (let at = 0; at < ofType.length; at += batch) this.#ahead.push({ leases: ofType.slice(at, at + batch), type });
    }
    this.#runAhead();
  }

  // Runs handlers while there is room.
  #runAhead() {
    while (this.#ahead.length > 0 && this.#room() > 0 && !this.#stopping) {
      const first = this.#ahead.findIndex(({ type }) => this.#handlers.get(type).running < this.#handlers.get(type).concurrency);
      if (first < 0) break;
      const [{ leases, type }] = this.#ahead.splice(first, 1);
      const ready = leases.filter((lease) => lease.live);

      if (ready.length > 0) this.#runBatch(ready, type);
    }
    if (!this.hasAhead) this.settlements.hurry();
  }

  // ---- jobs ----

  // Runs a handler inside the hooks of its jobs, and settles the jobs.
  async #runBatch(leases, type) {
    const registered = this.#handlers.get(type);
    const refused = new Map();    // errors of jobs whose hooks have not run them
    let run = () => this.#perform(leases, registered, refused);

    this.#running++;
    registered.running++;
    for (const lease of leases) {
      const inner = run;
      run = () => this.#hooked(lease, inner, refused);
    }
    await run();
    this.#idle.ring();
  }

  // Runs the hook of a job around the next one.  A batch goes on without a job whose hook throws
  // before it, or does not run it.
  async #hooked(lease, inner, refused) {
    let running = null;

    try {
      await this.around(lease.job, async () => {
        running ??= inner();
        await running;
        return lease.outcome;
      });
      if (running === null) throw new Error('the hook "around" has not run the job');
    } catch (thrown) {
      const error = asError(thrown);

      if (running === null) refused.set(lease, error);
      this.#logJob('hook_failed', lease, { level: 'error', error: error.message });
    }
    await (running ?? inner());
  }

  async #perform(leases, registered, refused) {
    const { handler, many } = registered;
    const ready = leases.filter((lease) => !refused.has(lease));
    const jobs = ready.map((lease) => lease.job);
    let ends = [];

    for (const lease of ready) {
      lease.began = performance.now();
      this.#logJob('job_started', lease);
    }
    try {
      if (ready.length > 0) {
        const value = await handler(many ? jobs : jobs[0]);
        ends = many ? value ?? jobs.map(() => undefined) : [value];
      }
      if (!Array.isArray(ends) || ends.length !== jobs.length) {
        throw new Permanent(`the batch handler returned no array of ${jobs.length} results`);
      }
    } catch (error) {
      ends = jobs.map(() => asError(error));
    }
    await this.#handlerEnded([...ready, ...refused.keys()], [...ends, ...refused.values()], registered);
  }

  async #handlerEnded(leases, ends, registered) {
    let left = leases.length;
    let allSettled;
    const settled = new Promise((resolve) => { allSettled = resolve; });
    const done = () => {
      if (--left === 0) allSettled();
    };

    this.#running--;
    registered.running--;
    if (this.#leftOut.has(leases[0].job.type)) this.#cancelClaim();
    this.#settling++;
    for (let i = 0; i < leases.length; i++) this.#settle(leases[i], ends[i], done);
    this.#goOn();
    await settled;
    this.#settling--;
    this.#goOn();
    this.#idle.ring();
  }

  // There may be room.
  #goOn() {
    this.#runAhead();
    this.#bell.ring();
  }

  // Settles a job and calls done().  Completions, the most frequent end, go without promises of
  // their own.
  #settle(lease, end, done = () => {}) {
    if (lease.outcome !== null) return done();
    if (end instanceof Error) return this.#settleAlone(lease, end).then(done);
    let result;

    try {
      result = resultText(end);
    } catch {
      return this.#settleAlone(lease, end).then(done);
    }
    this.settlements.add({
      lease,
      result,
      resolve: (completed) => {
        // Completed by Job.complete: true, if that transaction was rolled back.
        this.#settled(lease, completed || lease.completed, 'completed');
        this.#leases.delete(lease);
        done();
      },
      reject: (error) => this.#settleAlone(lease, end, error).then(done),
    });
  }

  // `refusal`: the error of a completion.
  async #settleAlone(lease, end, refusal) {
    try {
      if (end instanceof Error) await this.#settleError(lease, end);
      else {
        await this.#settleAs(lease, 'completed', async () => {
          if (refusal) throw refusal;
          resultText(end);   // throws
        });
      }
    } catch (error) {
      if (!(error instanceof Unanswered)) this.log({ event: 'settlement_failed', level: 'error', job_id: lease.id, job_type: lease.job.type, error: error.message });
      lease.lose();
    }
    this.#leases.delete(lease);
  }

  // Ends the attempt by a call of boolean.  An end that cannot be stored is a permanent failure.
  async #settleAs(lease, outcome, call) {
    let done;

    try {
      done = await call();
    } catch (error) {
      if (error instanceof Unanswered) throw error;
      const what = outcome === 'completed' ? 'result' : 'end of the attempt';
      return this.#failed(lease, new Permanent(`the ${what} cannot be stored: ${error.message}`, { code: error.code }), outcome === 'completed');
    }
    this.#settled(lease, done, outcome);
  }

  async #settleError(lease, error) {
    await lease.reported;
    if (lease.stopReason === 'cancel') {
      const outcome = await this.settlements.fail(lease, 'cancelled', false);
      this.#settled(lease, outcome !== 'lost', 'cancelled');
    } else if (error instanceof Skip) {
      await this.#settleAs(lease, 'skipped', async () => this.settlements.skip(lease, error.reason, resultText(error.result)));
    } else if (error instanceof Snooze) {
      await this.#settleAs(lease, 'snoozed', async () => this.settlements.snooze(lease, error.delay, error.reason));
    } else if (lease.stopReason === 'shutdown') {
      await this.#release(lease);
    } else if (error instanceof LeaseLost) {    // of another job of its batch
      await this.#release(lease, 'another job of the batch was lost');
    } else {
      await this.#failed(lease, error);
    }
  }

  // `returned`: the handler has returned a result, which cannot be stored; that does not undo
  // Job.complete.
  async #failed(lease, error, returned = false) {
    const outcome = await this.settlements.fail(lease, error);

    if (outcome === 'lost' && lease.completed && returned) return this.#settled(lease, true, 'completed');
    this.#settled(lease, outcome !== 'lost', 'failed', { error: String(error?.message ?? error), outcome });
  }

  // Logs the end of a job after the server's answer.
  #settled(lease, done, outcome, more = {}) {
    if (lease.outcome !== null) return;
    if (!done) return lease.lose();
    lease.end(outcome);
    this.#logEnd(outcome, lease, outcome === 'failed' ? { level: 'warning', ...more } : more);
  }

  async #release(lease, reason = 'the worker stops') {
    try {
      await lease.reported;
      this.#settled(lease, await this.settlements.snooze(lease, 0, reason), 'released');
    } catch {
      lease.lose();
    }
    this.#leases.delete(lease);
  }

  // Releases jobs whose handlers have not begun.
  async #releaseAll(leases) {
    this.#settling++;
    await Promise.all(leases.filter((lease) => lease.live).map((lease) => this.#release(lease)));
    this.#settling--;
    this.#idle.ring();
  }

  #logJob(event, lease, more = {}) {
    this.log({ event, job_id: lease.id, job_type: lease.job.type, attempt: lease.job.attempts, ...more });
  }

  // duration_ms: since the start of the handler.
  #logEnd(outcome, lease, more) {
    const duration = lease.began === null ? 0 : Math.round(performance.now() - lease.began);

    this.#logJob(`job_${outcome}`, lease, { outcome, duration_ms: duration, ...more });
  }

  // ---- leases ----

  // One statement for all jobs of the process.  If a row is locked, each job has its own, and later
  // beats leave those that were locked to the end.
  async #heartbeat() {
    this.#beatAgain = this.#beating;
    if (this.#beating) return;
    this.#beating = true;
    this.#lastBeat = performance.now();
    try {
      const leases = this.#beatable();

      if (!await this.#beat(leases.filter((lease) => !lease.locked), this.lockMs)) {
        for (const lease of leases.filter((lease) => !lease.locked)) await this.#beatAlone(lease);
      }
      for (const lease of leases.filter((lease) => lease.locked)) await this.#beatAlone(lease);
      if (this.#beatable().some((lease) => lease.locked)) setTimeout(() => this.#heartbeat(), this.leaseMs / 12).unref();
    } catch (error) {
      this.log({ event: 'heartbeat_refused', level: 'error', error: error.message });
    } finally {
      this.#beating = false;
      if (this.#beatAgain) this.#beatSoon();
    }
  }

  #beatable() {
    return [...this.#leases].filter((lease) => lease.live && lease.completed === null);
  }

  async #beatAlone(lease) {
    if (lease.live && lease.completed === null) lease.locked = !await this.#beat([lease], this.shortLockMs);
  }

  // Returns false if a lock of a row has ended the statement.
  async #beat(leases, lockMs) {
    if (leases.length === 0) return true;
    try {
      const { rows, sentAt } = await this.call(sql.heartbeat,
        [leases.map((lease) => lease.id), leases.map((lease) => lease.token), lockMs], leases, isLost, true);
      const states = new Map(rows.map((row) => [row.token, row.state]));

      for (const lease of leases) lease.heard(states.get(lease.token), sentAt);
      return true;
    } catch (error) {
      if (!(error instanceof Unanswered) || isLost(error.cause)) throw error;
      this.log({ event: 'call_delayed', level: 'warning', error: error.message });
      return false;
    }
  }

  // A notification: there may be a job, or a cancel of a running one.
  #notified() {
    this.#bell.ring();
    this.#beatSoon();
  }

  // Ten heartbeats a second at most.
  #beatSoon() {
    const delay = Math.max(0, 100 - (performance.now() - this.#lastBeat));
    setTimeout(() => this.#heartbeat(), delay).unref();
  }

  // ---- stop ----

  // Waits for running jobs, then stops their handlers, then releases the rest.  Each step has its
  // time.
  async #finish() {
    this.#stoppedAt = Math.min(this.#stoppedAt, performance.now());
    this.#releaseAll(this.#ahead.splice(0).flatMap(({ leases }) => leases));
    await this.#drain(() => this.#stoppedAt + this.grace * 1000);
    for (const lease of this.#leases) lease.stop('shutdown');
    const stopped = performance.now();
    await this.#drain(() => stopped + stopMs);
    this.#givingUp = true;
    this.calls.hurry();
    const abort = setTimeout(() => this.calls.abort(), releaseMs);
    await Promise.all([...this.#leases].map((lease) => this.#release(lease)));
    clearTimeout(abort);
  }

  // Waits until no job is running, at most until end().
  async #drain(end) {
    while ((this.#running > 0 || this.#settling > 0) && performance.now() < end()) {
      await this.#idle.wait(Math.max(1, end() - performance.now()));
    }
  }
}
