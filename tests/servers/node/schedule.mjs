// Has a queue repeat a job: {queue, id, repeat, name, data, opts}.
import { Queue, say, told, where } from "./bullmq.mjs";

const queue = new Queue(told.queue, where);
const template = { name: told.name, data: told.data, opts: told.opts };
const job = await queue.upsertJobScheduler(told.id, told.repeat, template);
await queue.close();
say("scheduled", { id: job.id });
