/**
 * Sends dead events back to the main queue, through the HTTP API of `dlq serve`.
 *
 *     npx tsx scripts/dlq/replay-dlq.ts --limit N [--reason TEXT] [--where QUERY]
 *
 * The oldest events go first. Pending letters are marked as reviewed before they are sent.
 * DLQ_SERVER is the address of the server, DLQ_TOKEN the token of an operator.
 */

import { parseArgs } from "node:util";

const MAIN = "courier-events-main";
const USUAL = 10; // events, without --limit
const PAGE = 500;
const USAGE = 2; // exit code of a wrong command line

interface Letter {
  id: string;
  state: string;
}

interface Page {
  heads: Letter[];
  after: string | null;
}

interface Planned {
  replay: { id: string };
  sendable: number;
}

class UsageError extends Error {}

interface Options {
  limit: number;
  reason: string;
  where: string;
}

function readOptions(): Options {
  try {
    const { values } = parseArgs({
      options: {
        limit: { type: "string", default: String(USUAL) },
        reason: { type: "string", default: "replayed by hand" },
        where: { type: "string", default: "" },
      },
    });
    const limit = Number(values.limit);
    if (!Number.isInteger(limit) || limit < 1) {
      throw new UsageError(`--limit must be a whole number of at least 1, got ${values.limit}`);
    }
    return { limit, reason: values.reason, where: values.where };
  } catch (error) {
    throw error instanceof UsageError ? error : new UsageError((error as Error).message);
  }
}

const server = process.env.DLQ_SERVER ?? "http://127.0.0.1:8418";
const token = process.env.DLQ_TOKEN;

async function ask<T>(path: string, body?: unknown): Promise<T> {
  const answer = await fetch(`${server}/api/v1${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: {
      "content-type": "application/json",
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const said = await answer.text();
  if (!answer.ok) {
    throw new Error(`${server} answered ${answer.status} to ${path.split("?")[0]}: ${said}`);
  }
  return JSON.parse(said) as T;
}

/** Return the letters that may be sent, oldest death first. */
async function findLetters(where: string): Promise<Letter[]> {
  const chosen = `source:${MAIN} is:[pending,reviewed]`;
  const query = where.trim() === "" ? chosen : `${chosen} (${where})`;
  const found: Letter[] = [];
  let after: string | null = null;
  do {
    const asked = new URLSearchParams({ query, limit: String(PAGE) });
    if (after !== null) asked.set("after", after);
    const page: Page = await ask<Page>(`/letters?${asked}`);
    found.push(...page.heads);
    after = page.after;
  } while (after !== null);
  return found.reverse();
}

/** Review and send some letters; return how many were sent. */
async function sendBack(letters: Letter[], reason: string): Promise<number> {
  const pending = letters.filter((letter) => letter.state === "pending").map(({ id }) => id);
  if (pending.length > 0) {
    await ask("/letters/review", { ids: pending, reason });
  }
  const ids = letters.map(({ id }) => id);
  const { replay, sendable } = await ask<Planned>("/replays/plan", { ids, reason });
  if (sendable === 0) return 0;
  await ask(`/replays/${replay.id}/start`, { reason });
  console.log(`${sendable} sent to ${MAIN}, replay ${replay.id}`);
  return sendable;
}

async function run(): Promise<void> {
  const { limit, reason, where } = readOptions();
  const letters = await findLetters(where);
  let sent = 0;
  // Some may be left alone, such as events that were processed meanwhile: others take their place.
  while (sent < limit && letters.length > 0) {
    sent += await sendBack(letters.splice(0, Math.min(limit - sent, PAGE)), reason);
  }
  console.log(`DLQ replay completed: ${sent} of at most ${limit} dead events sent`);
}

run().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = error instanceof UsageError ? USAGE : 1;
});
