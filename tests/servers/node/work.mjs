// Works a queue: {queue, how, options}; `how` is what becomes of a job.
//   complete   it is done        fail   it fails        hang   it is never done
import { Worker, atTheEnd, say, told, where } from "./bullmq.mjs";

const worker = new Worker(
  told.queue,
  async (job) => {
    say("job", {
      id: job.id,
      name: job.name,
      data: job.data,
      opts: job.opts,
      attemptsMade: job.attemptsMade,
      attemptsStarted: job.attemptsStarted,
      stalledCounter: job.stalledCounter,
    });
    if (told.log) await job.log(told.log);
    if (told.how === "fail") throw new Error("no good");
    if (told.how === "hang") await new Promise(() => setInterval(() => {}, 1000));
    return { done: job.id };
  },
  { ...where, ...told.options },
);
worker.on("completed", (job) => say("completed", { id: job.id }));
worker.on("failed", (job, error) => say("failed", { id: job?.id, error: error.message }));
atTheEnd(worker);
await worker.waitUntilReady();
say("ready");
