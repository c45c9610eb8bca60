// A worker: takes messages of one flow from a tidegate host, does a pretend job with each, and settles it.
// The protocol is read from `handoff.proto` at the start: nothing is generated.

import { setTimeout as sleep } from "node:timers/promises";

import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const { TIDEGATE_ADDRESS = "127.0.0.1:9641", TIDEGATE_FLOW = "jobs", TIDEGATE_WORKER = "javascript" } = process.env;
const { TIDEGATE_TOKEN, TIDEGATE_PROTO = "proto/tidegate/v1/handoff.proto" } = process.env;
const { TIDEGATE_SETTLE_ADDRESS } = process.env; // another host of the fleet, to settle there
const CREDITS = Number(process.env.TIDEGATE_CREDITS ?? 4); // messages at one time
const TRACE = "TIDEGATE_TRACE" in process.env; // whether to say what comes and what is settled, with receipts

const definition = loader.loadSync(TIDEGATE_PROTO, { keepCase: true, enums: String, longs: Number, oneofs: true });
const { Handoff } = grpc.loadPackageDefinition(definition).tidegate.v1;
const connect = (address) =>
  new Handoff(address, grpc.credentials.createInsecure(), {
    // A message may be larger than the 4 MB that gRPC takes by default, and a host that is gone has to be noticed.
    "grpc.max_receive_message_length": 64 << 20,
    "grpc.keepalive_time_ms": 10_000,
  });
const host = connect(TIDEGATE_ADDRESS);
const settler = TIDEGATE_SETTLE_ADDRESS ? connect(TIDEGATE_SETTLE_ADDRESS) : host;
const metadata = new grpc.Metadata();
if (TIDEGATE_TOKEN) metadata.set("authorization", `Bearer ${TIDEGATE_TOKEN}`);

let stream = null; // the one that is open
let stopping = false;
let running = 0; // messages that are being worked on
// Settlements without an answer, by receipt. From `due` on one is tried past the streams, until its lease ends.
const unsettled = new Map();

const backoff = (failures) => (0.5 + Math.random() / 2) * Math.min(10_000, 100 * 2 ** failures);

/** The pretend job. Says what is to become of the message. */
async function work(delivery) {
  await sleep(50);
  const body = delivery.body.toString();
  if (body === "reject") return { reject: { reason: "it says so itself" } };
  if (body === "defer" && delivery.attempt === 1) return { defer: { delay_ms: 1000 } };
  return { accept: {} };
}

async function handle(delivery) {
  const ends = Date.now() + delivery.lease_ms;
  running += 1;
  const knownAs = `${delivery.message_id} ${delivery.body} attempt ${delivery.attempt}`;
  if (TRACE) console.log(`took ${knownAs} for ${delivery.lease_ms} ms by ${delivery.receipt}`);
  let verdict = { release: {} };
  try {
    if (!stopping) verdict = await work(delivery);
  } catch (error) {
    console.log(`failed ${knownAs}: ${error}`); // what this worker cannot do, another may
  }
  running -= 1;
  const settlement = { receipt: delivery.receipt, ...verdict };
  const what = `${Object.keys(verdict)[0]} ${knownAs} by …${delivery.receipt.slice(-12)}`;
  const settlesHere = stream && (settler === host || !verdict.accept);
  // A stream answers within 300 s, or it ends.
  unsettled.set(delivery.receipt, { settlement, what, due: Date.now() + (settlesHere ? 330_000 : 0), ends });
  if (settlesHere) {
    if (TRACE) console.log(`settles ${what}`);
    stream.write({ settle: { settlements: [settlement] } });
  }
}

/** Takes answers. Only what is to be tried again stays. */
function note(results) {
  for (const { receipt, status, detail } of results) {
    const one = unsettled.get(receipt);
    if (!one) continue;
    if (status === "STATUS_RETRY_LATER") {
      one.due = Date.now() + 1000;
    } else {
      unsettled.delete(receipt);
      console.log(`${status.replace("STATUS_", "").toLowerCase()} ${one.what} ${detail}`);
    }
  }
}

/** Settles what no stream is asked about, or has answered. A receipt is good on any host of the fleet. */
async function settleLate() {
  const [late, now] = [[], Date.now()];
  for (const [receipt, one] of unsettled) {
    if (one.due > now || late.length === 1000) continue;
    if (one.ends < now && unsettled.delete(receipt)) console.log(`unsettled ${one.what}`);
    else {
      late.push(one.settlement);
      if (TRACE) console.log(`settles ${one.what}`);
    }
    one.due = now + 1000;
  }
  if (late.length === 0) return;
  // Or the host that gave them out would still count on them.
  const receipts = late.filter(({ accept }) => accept).map(({ receipt }) => receipt);
  if (settler !== host) stream?.write({ elsewhere: { receipts } });
  await new Promise((answered) =>
    settler.settle({ settlements: late }, metadata, { deadline: Date.now() + 15_000 }, (error, response) => {
      if (error) console.log(`cannot settle ${late.length} now: ${error.details}`);
      else note(response.results);
      answered();
    }),
  );
}

/** Waits until all is done and answered. */
async function finish(isOver = () => false, patience = 30_000) {
  const giveUpAt = Date.now() + patience;
  while ((running || unsettled.size) && !isOver() && Date.now() < giveUpAt) await sleep(50);
}

/** One stream, until it ends. Says whether it was opened. */
async function subscribe() {
  const call = host.subscribe(metadata);
  let [opened, draining, ended] = [false, false, false];
  call.on("data", (response) => {
    if (response.kind === "opened") {
      [stream, opened] = [call, true];
      console.log(`subscribed at ${response.opened.host}`);
    } else if (response.kind === "deliveries") response.deliveries.deliveries.forEach(handle);
    else if (response.kind === "settled") note(response.settled.results);
    else if (response.kind === "draining") draining = true;
  });
  call.on("error", (error) => console.log(`the stream broke: ${error.details}`));
  call.on("status", () => (ended = true));
  call.write({ open: { flow: TIDEGATE_FLOW, worker: TIDEGATE_WORKER, credits: { messages: CREDITS } } });
  while (!stopping && !draining && !ended) await sleep(50);
  if (!ended) {
    call.write({ credits: { messages: 0 } }); // nothing more
    await finish(() => ended);
    call.end(); // what is not settled goes to others
  }
  while (!ended) await sleep(50);
  stream = null;
  for (const one of unsettled.values()) one.due = 0;
  return opened;
}

for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => (stopping = true));
const settling = (async () => {
  while (!stopping || running || unsettled.size) await settleLate().then(() => sleep(200));
})();
for (let failures = 0; !stopping; await sleep(stopping ? 0 : backoff(failures))) {
  failures = (await subscribe()) ? 1 : failures + 1;
}
await Promise.race([settling, finish()]);
host.close();
settler.close();
console.log("left");
process.exit();
