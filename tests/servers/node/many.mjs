// Works many queues: {queues, jobs, how, log}; the jobs are added to each of them first.
// A job is told of with its data; at the end of a run, with what became of it.
import { Queue, Worker, atTheEnd, say, told, where } from "./bullmq.mjs";

for (const name of told.jobs ? told.queues : []) {
  const queue = new Queue(name, where);
  await queue.addBulk(told.jobs);
  await queue.close();
}
const workers = told.queues.map((name) => {
  const worker = new Worker(
    name,
    async (job) => {
      if (told.log) await job.log(told.log);
      if (told.how === "fail") throw new TypeError(`no price for ${job.id}`);
      return job.data;
    },
    { ...where, concurrency: 10 },
  );
  worker.on("completed", (job) => say("completed", { queue: name, id: job.id, data: job.data }));
  worker.on("failed", (job) => say("failed", { queue: name, id: job.id, data: job.data }));
  return worker;
});
atTheEnd(...workers);
await Promise.all(workers.map((worker) => worker.waitUntilReady()));
say("ready");
