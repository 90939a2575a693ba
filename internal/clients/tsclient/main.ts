// Uses the types that openapi-typescript makes of the OpenAPI document. The arguments are the host's address, a key with
// all scopes, and one with files:read alone.
import createClient from "openapi-fetch";
import type { components, paths, webhooks } from "./api";

const [url, all, few] = process.argv.slice(2);
const connect = (key: string) => createClient<paths>({ baseUrl: url, headers: { "Api-Key": key } });
const admin = connect(all!), narrow = connect(few!);

function want(response: Response, status: number): void {
  if (response.status !== status) throw new Error(`${response.url} answered ${response.status}, want ${status}`);
}

function check(ok: boolean, what: string): asserts ok {
  if (!ok) throw new Error(what);
}

// The host's own scope and event type are part of the types.
const scope: components["schemas"]["Scope"] = "invoices:read";
const event: components["schemas"]["EventType"] = "invoices.paid";
type Paid = webhooks["invoices.paid"]["post"]["requestBody"]["content"]["application/json"];
const paid: Paid = { id: "evt_1", type: "invoices.paid", timestamp: "2026-11-20T12:00:00.001Z", data: { invoiceId: "inv_1" } };
check(paid.type === event, "the event has another type");
// @ts-expect-error there is no such scope
const unknown: components["schemas"]["Scope"] = "invoices:delete";
check(unknown !== scope, "never");

const made = await admin.POST("/api/v1/api-keys", { body: { name: "ci", scopes: [scope, "files:read"] } });
want(made.response, 201);
check(made.data !== undefined && "key" in made.data && made.data.scopes[0] === scope, "not the key that was asked for");
const id = made.data.id;

let found = false;
for (let cursor: string | undefined, more = true; more; ) {
  const list = await admin.GET("/api/v1/api-keys", { params: { query: { limit: 1, cursor } } });
  want(list.response, 200);
  check(list.data !== undefined, "no page");
  found ||= list.data.data.some((key) => key.id === id && key.expiresAt === null);
  cursor = list.data.nextCursor ?? undefined;
  more = list.data.hasMore;
}
check(found, "the key is not in the list");

const refused = await narrow.POST("/api/v1/api-keys", { body: { name: "more", scopes: [scope] } });
want(refused.response, 403);
check(refused.error?.error.code === "FORBIDDEN", "another code");

const once = { header: { "Idempotency-Key": "9c1d4f3e" } };
want((await admin.POST("/api/v1/api-keys", { params: once, body: { name: "one", scopes: ["files:read"] } })).response, 201);
const conflict = await admin.POST("/api/v1/api-keys", { params: once, body: { name: "another", scopes: ["files:read"] } });
want(conflict.response, 409);
check(conflict.error?.error.code === "CONFLICT", "another code");

const changed = await admin.PATCH("/api/v1/api-keys/{id}", { params: { path: { id }, header: { "If-Match": '"other"' } }, body: { name: "renamed" } });
want(changed.response, 412);
check(changed.error?.error.code === "PRECONDITION_FAILED", "another code");
const read = await admin.GET("/api/v1/api-keys/{id}", { params: { path: { id } } });
want(read.response, 200);
const tag = read.response.headers.get("ETag") ?? "";
want((await admin.PATCH("/api/v1/api-keys/{id}", { params: { path: { id }, header: { "If-Match": tag } }, body: { name: "renamed" } })).response, 200);

const hook = await admin.POST("/api/v1/notifications/webhooks", { body: { url: "https://example.com/hooks", events: [event] } });
want(hook.response, 201);
check(hook.data !== undefined && "secret" in hook.data && hook.data.events[0] === event, "not the webhook that was asked for");
want((await admin.GET("/api/v1/notifications/webhooks/{id}/deliveries", { params: { path: { id: hook.data.id } } })).response, 200);
const events = await admin.GET("/api/v1/notifications/events", { params: { query: { since: "2026-01-01" } } });
want(events.response, 200);
check(events.data !== undefined && events.data.data.length === 0 && events.data.nextCursor !== null, "not the list that was asked for");
want((await admin.GET("/api/v1/notifications/events/{id}/body", { params: { path: { id: "evt_1" } } })).response, 404);

want((await admin.DELETE("/api/v1/api-keys/{id}", { params: { path: { id } } })).response, 204);
