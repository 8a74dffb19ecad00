// Retries failed jobs: {queue, ids}.
import { Queue, say, told, where } from "./bullmq.mjs";

const queue = new Queue(told.queue, where);
for (const id of told.ids) {
  const job = await queue.getJob(id);
  await job.retry();
}
await queue.close();
say("retried");
