// Says when cron patterns are next, by the parser that BullMQ uses: {cases: [[pattern, tz, at]]}.
import { createRequire } from "node:module";
import { say, told } from "./bullmq.mjs";

const { CronExpressionParser } = createRequire(process.env.BULLMQ_HOME)("cron-parser");
const next = told.cases.map(([pattern, tz, at]) => {
  const interval = CronExpressionParser.parse(pattern, { tz, currentDate: new Date(at) });
  return [1, 2, 3].map(() => interval.next().getTime());
});
say("next", { next });
