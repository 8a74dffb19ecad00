// A shop on BullMQ: {queue, folder, orders}. With orders it sends them and ends; else it works.
import { appendFileSync, existsSync } from "node:fs";
import { Queue, Worker, atTheEnd, say, told, where } from "./bullmq.mjs";

if (told.orders) {
  const queue = new Queue(told.queue, where);
  await queue.addBulk(told.orders.map((order) => ({ name: "charge", data: { order } })));
  await queue.close();
  say("sent");
} else {
  const worker = new Worker(
    told.queue,
    async ({ data }) => {
      if (existsSync(`${told.folder}/broken`)) throw new TypeError(`order ${data.order} has no price`);
      appendFileSync(`${told.folder}/charged`, `${data.order}\n`);
    },
    where,
  );
  atTheEnd(worker);
}
