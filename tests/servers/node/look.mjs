// Looks at a queue: {queue, ids}; says its counts and those jobs.
import { Queue, say, told, where } from "./bullmq.mjs";

const queue = new Queue(told.queue, where);
const counts = await queue.getJobCounts();
const jobs = [];
for (const id of told.ids ?? []) {
  const job = await queue.getJob(id);
  jobs.push(job && { ...job.toJSON(), state: await job.getState() });
}
await queue.close();
say("seen", { counts, jobs });
