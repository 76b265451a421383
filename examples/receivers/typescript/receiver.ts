// Receives http actions of cronbox: verifies each request, and does the work of each run once.
//
//     npm ci && npm run build
//     CRONBOX_SIGNING_SECRET=whsec_.. npm start
//
// RECEIVER_PORT is the port on 127.0.0.1 (8000; 0 takes a free one).

import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";

import { Webhook } from "standardwebhooks";

/** In bytes; cronbox sends less, because its API takes 256 KiB at most. */
const BODY_LIMIT = 1_048_576;

/** The body of an action that has none of its own. */
interface Call {
  run_id: string;
  workflow_id: number;
  trigger: string;
  scheduled_time: string | null;
  attempt: number;
  inputs: unknown;
}

/** The status and the body of an answer. */
type Answer = [status: number, body: object];

/** Replace this by what the run is for. */
async function work(call: Call): Promise<void> {
  console.log(`run ${call.run_id} of workflow ${call.workflow_id} for ${call.scheduled_time}`);
}

/** The runs whose work is done or in progress. A restart loses them: keep the ids in the database in which you work. */
const runs = new Map<string, Promise<void>>();

/** Returns whether the run's work was done before. If the work fails, the next attempt does it again. */
async function workOnce(id: string, call: Call): Promise<boolean> {
  const earlier = runs.get(id);
  if (earlier !== undefined) {
    await earlier;
    return true;
  }
  const begun = work(call);
  runs.set(id, begun);
  try {
    await begun;
    return false;
  } catch (error) {
    runs.delete(id);
    throw error;
  }
}

/** The body, or nothing if it is larger than the limit. */
async function readBody(request: IncomingMessage): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request) {
    const bytes = chunk as Buffer;
    length += bytes.length;
    // It is read to its end, so that the answer reaches the client.
    if (length <= BODY_LIMIT) {
      chunks.push(bytes);
    }
  }
  return length <= BODY_LIMIT ? Buffer.concat(chunks) : undefined;
}

function header(request: IncomingMessage, name: string): string {
  const value = request.headers[name];
  return typeof value === "string" ? value : "";
}

async function receive(webhook: Webhook, request: IncomingMessage): Promise<Answer> {
  const body = await readBody(request);
  if (body === undefined) {
    return [413, { error: `the body has more than ${BODY_LIMIT} bytes` }];
  }
  const id = header(request, "webhook-id");
  const headers = {
    "webhook-id": id,
    "webhook-timestamp": header(request, "webhook-timestamp"),
    "webhook-signature": header(request, "webhook-signature"),
  };
  try {
    // An action's own body may be no JSON, so the library only verifies here.
    webhook.verify(body, headers, { jsonParse: false });
  } catch (error) {
    return [401, { error: String(error) }];
  }
  let call: Call;
  try {
    call = JSON.parse(body.toString()) as Call;
  } catch (error) {
    return [400, { error: String(error) }];
  }
  const repeated = await workOnce(id, call);
  return [200, { run_id: id, repeated }];
}

const webhook = new Webhook(process.env["CRONBOX_SIGNING_SECRET"] ?? "");

const server = createServer((request, response) => {
  receive(webhook, request)
    // cronbox tries again, up to the workflow's max_attempts.
    .catch((error: unknown): Answer => [500, { error: String(error) }])
    .then(([status, body]) => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    });
});

server.listen(Number(process.env["RECEIVER_PORT"] ?? "8000"), "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  console.log(`receiver listens on http://127.0.0.1:${port}`);
});
