// jobq for Node: workers and enqueue (README.md).

export { clientOptions } from './connection.mjs';
export { enqueue, enqueueMany } from './enqueue.mjs';
export { Failure, Job, LeaseLost, Permanent, Retry, Skip, Snooze, Stopped } from './job.mjs';
export { Worker } from './worker.mjs';
