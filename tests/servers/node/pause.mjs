// Pauses or resumes a queue, or sets its limits: {queue, verb, ...}.
import { Queue, say, told, where } from "./bullmq.mjs";

const queue = new Queue(told.queue, where);
const verbs = {
  pause: () => queue.pause(),
  resume: () => queue.resume(),
  concurrency: () => queue.setGlobalConcurrency(told.most),
  rate: () => queue.setGlobalRateLimit(told.most, told.within),
};
await verbs[told.verb]();
await queue.close();
say("done");
