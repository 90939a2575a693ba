// Reads the requests that v1a_test.go writes on stdin. Writes which of them the receiver of docs/receivers.md and keys
// imported by jose accept, and the thumbprints of the keys.
import { readFileSync } from "node:fs";
import { calculateJwkThumbprint, importJWK } from "jose";

const { verified } = await import(process.env.RECEIVER);
const set = await (await fetch(process.env.WEBHOOK_JWKS)).json();
const keys = await Promise.all(set.keys.map((key) => importJWK(key, key.alg)));

async function acceptedByJose({ headers, body }) {
  const signed = Buffer.from(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`);
  for (const item of headers["webhook-signature"].split(" ")) {
    if (!item.startsWith("v1a,")) continue;
    for (const key of keys) {
      if (await crypto.subtle.verify("Ed25519", key, Buffer.from(item.slice(4), "base64"), signed)) return true;
    }
  }
  return false;
}

const requests = JSON.parse(readFileSync(0, "utf8"));
const result = { docs: [], jose: [], thumbprints: await Promise.all(set.keys.map((key) => calculateJwkThumbprint(key))) };
for (const request of requests) {
  result.docs.push(verified(request.headers, Buffer.from(request.body)));
  result.jose.push(await acceptedByJose(request));
}
process.stdout.write(JSON.stringify(result));
