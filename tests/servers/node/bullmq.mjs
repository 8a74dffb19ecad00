// The installed package, what this script was told, and how it answers.
import { createRequire } from "node:module";

export const { Job, FlowProducer, Queue, QueueEvents, Worker } = createRequire(
  process.env.BULLMQ_HOME,
)("bullmq");
export const told = JSON.parse(process.argv[2]);
export const where = { connection: told.connection, prefix: told.prefix };

export function say(what, more = {}) {
  process.stdout.write(JSON.stringify({ what, ...more }) + "\n");
}

export function atTheEnd(...things) {
  process.on("SIGTERM", async () => {
    await Promise.all(things.map((thing) => thing.close()));
    process.exit(0);
  });
}
