// Reads messages as node_test.go writes them on stdin, and writes what Node.js makes of each: whether the signature of
// the body is right, whether the libraries accept the message, and what they would sign it with.
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { Webhook as StandardWebhook } from "standardwebhooks";
import { Webhook as SvixWebhook } from "svix";

const libraries = { standardwebhooks: StandardWebhook, svix: SvixWebhook };

// The documented one-liner.
const sign = (secret, body) => createHmac("sha256", secret).update(body).digest("hex");

function accepts(Webhook, secret, { body, headers }) {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch (error) {
    return error instanceof SyntaxError; // accepted, but the empty body is not JSON
  }
}

function judge(message) {
  Date.now = () => message.now * 1000; // which is what the libraries ask
  const values = (message.headers["X-Service-Signature"] ?? "").split(",");
  const verdict = {
    service: message.secrets.some((secret) => values.includes(sign(secret, message.body))),
    standard: {},
    signature: {},
  };
  for (const [name, Webhook] of Object.entries(libraries)) {
    verdict.standard[name] = message.secrets.some((secret) => accepts(Webhook, secret, message));
    verdict.signature[name] = new Webhook(message.secrets[0]).sign("msg_1", new Date(message.now * 1000), message.body);
  }
  return verdict;
}

const messages = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(messages.map(judge)));
