// Looks at a queue: {queue, ids}; says its counts and those jobs.
import { Queue, say, told, where } from "./bullmq.mjs";

const queue = new Queue(told.queue, where);
const counts = await queue.getJobCounts();
const jobs = [];
for (const id of told.ids ?? []) {
  const job = await queue.getJob(id);
  if (!job) {
    jobs.push(null);
    continue;
  }
  const { logs } = await queue.getJobLogs(id);
  const children = await job.getChildrenValues();
  jobs.push({ ...job.toJSON(), state: await job.getState(), logs, children });
}
const workers = await queue.getWorkers();
const schedulers = await queue.getJobSchedulers();
await queue.close();
say("seen", { counts, jobs, workers, schedulers });
