// Adds a flow: {flow}; says the id of its parent.
import { FlowProducer, say, told, where } from "./bullmq.mjs";

const flows = new FlowProducer(where);
const { job } = await flows.add(told.flow);
await flows.close();
say("added", { id: job.id });
