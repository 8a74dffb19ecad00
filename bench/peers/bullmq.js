// BullMQ on Redis: one worker, fifty jobs at once.
//
// It acknowledges after the handler. Failed jobs keep payload and a stack for each
// attempt. Replay is one call of its own, a thousand to a script; nothing is tracked.
//
//     node bullmq.js WORKLOAD FOLDER N URL SETTING
'use strict';
const { Queue, Worker } = require('bullmq');

const ATTEMPTS = 3;
const [workload, , count, address] = process.argv.slice(2);
const n = Number(count);
const url = new URL(address);
const connection = {
  host: url.hostname,
  port: Number(url.port),
  password: decodeURIComponent(url.password),
  maxRetriesPerRequest: null,
};

class Watch {
  start() {
    this.cpu = process.cpuUsage();
    this.started = process.hrtime.bigint();
  }

  stop() {
    const seconds = Number(process.hrtime.bigint() - this.started) / 1e9;
    const cpu = process.cpuUsage(this.cpu);
    return { n, seconds, cpu_seconds: (cpu.user + cpu.system) / 1e6 };
  }
}

function body(i) {
  return {
    order: { id: `order-${String(i).padStart(9, '0')}`, number: i, currency: 'EUR' },
    customer: { id: i % 9973, email: `customer${i % 9973}@example.org` },
    lines: [
      { article: 'A-1001', count: 2, cents: 1999 },
      { article: 'A-2044', count: 1, cents: 550 },
    ],
    placed: '2024-05-01T12:00:00Z',
    note: 'leave it with the neighbour if nobody opens',
  };
}

function mustBe(found, wanted, what) {
  if (found !== wanted) throw new Error(`${what}: ${found} instead of ${wanted}`);
}

async function filled() {
  const queue = new Queue('orders', { connection });
  const opts = { removeOnComplete: true, attempts: ATTEMPTS };
  for (let start = 0; start < n; start += 100) {
    const jobs = [];
    for (let i = start; i < Math.min(start + 100, n); i++) {
      jobs.push({ name: 'order', data: body(i), opts });
    }
    await queue.addBulk(jobs);
  }
  return queue;
}

async function working(calls, handle, isDone) {
  const watch = new Watch();
  let called = 0;
  let finish;
  const last = new Promise((resolve) => { finish = resolve; });
  const worker = new Worker('orders', async () => {
    if (called === 0) watch.start();
    called += 1;
    if (called === calls) finish();
    handle();
  }, { connection, concurrency: 50 });
  worker.on('error', () => {});
  await last;
  while (!(await isDone())) await new Promise((resolve) => setTimeout(resolve, 2));
  const measured = watch.stop();
  await worker.close(true);
  return measured;
}

function fail() {
  const text = Math.random().toString(16).slice(2, 14);
  throw new Error(`order ${text} cannot be booked`);
}

async function kill(queue) {
  const measured = await working(
    n * ATTEMPTS, fail, async () => (await queue.getFailedCount()) === n,
  );
  const [job] = await queue.getFailed(0, 0);
  mustBe(job.stacktrace.length, ATTEMPTS, 'stacks');
  return measured;
}

const workloads = {
  async happy() {
    const queue = await filled();
    return working(n, () => {}, async () => {
      const left = await queue.getJobCounts('wait', 'active');
      return left.wait + left.active === 0;
    });
  },
  async poison() {
    return kill(await filled());
  },
  async replay() {
    const queue = await filled();
    await kill(queue);
    const watch = new Watch();
    watch.start();
    await queue.retryJobs({ state: 'failed', count: 1000 });
    const measured = watch.stop();
    mustBe((await queue.getJobCounts('wait')).wait, n, 'queued');
    return measured;
  },
};

workloads[workload]().then((measured) => {
  console.log(JSON.stringify(measured));
  process.exit(0);
}, (error) => {
  console.error(error);
  process.exit(1);
});
