// Adds jobs: {queue, jobs: [{name, data, opts}], bulk}; says their ids.
import { Queue, say, told, where } from "./bullmq.mjs";

const queue = new Queue(told.queue, where);
const added = told.bulk
  ? await queue.addBulk(told.jobs)
  : await Promise.all(told.jobs.map((job) => queue.add(job.name, job.data, job.opts)));
await queue.close();
say("added", { ids: added.map((job) => job.id) });
