// Listens to a queue: {queue}; says every event it sees, from the first one on.
import { QueueEvents, atTheEnd, say, told, where } from "./bullmq.mjs";

const events = new QueueEvents(told.queue, { ...where, lastEventId: "0" });
const kinds = [
  ...["added", "waiting", "active", "completed", "failed", "delayed", "stalled"],
  ...["drained", "retries-exhausted"],
];
for (const kind of kinds) {
  events.on(kind, (more) => say(kind, more));
}
atTheEnd(events);
await events.waitUntilReady();
say("ready");
