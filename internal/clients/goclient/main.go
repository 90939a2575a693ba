//go:build generated

// Goclient uses the client that oapi-codegen generates from the OpenAPI document. The test puts the
// client next to this file. The arguments are the host's address, a key with all scopes, and a key
// with only files:read.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	_ "github.com/oapi-codegen/runtime" // the generated code imports it
)

func main() {
	log.SetFlags(log.Lshortfile)
	admin, narrow := connect(os.Args[2]), connect(os.Args[3])
	key := create(admin)
	list(admin, key.Id)
	itself(key)
	refused(narrow)
	conflict(admin)
	changed(admin, key.Id)
	hook(admin)
	deleted, err := admin.DeleteKeyWithResponse(context.Background(), key.Id, nil)
	want(err, deleted, http.StatusNoContent)
}

// connect returns a client that sends the key with each request.
func connect(key string) *ClientWithResponses {
	client, err := NewClientWithResponses(os.Args[1], WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Api-Key", key)
		return nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func create(client *ClientWithResponses) *KeyCreated {
	got, err := client.CreateKeyWithResponse(context.Background(), nil, CreateKey{Name: "ci", Scopes: []Scope{InvoicesRead, FilesRead}})
	want(err, got, http.StatusCreated)
	if key := got.JSON201; key.Key == "" || len(key.Scopes) != 2 || key.Scopes[0] != InvoicesRead {
		log.Fatal("the created key is not the requested one")
	}
	return got.JSON201
}

// itself gets the record of the key that sends the request.
func itself(key *KeyCreated) {
	got, err := connect(key.Key).GetOwnKeyWithResponse(context.Background())
	want(err, got, http.StatusOK)
	if self := got.JSON200; self.Id != key.Id || self.Hint == nil || self.Replaced {
		log.Fatal("the record is not the requesting key's")
	}
}

// list looks for the key, page by page.
func list(client *ClientWithResponses, id KeyId) {
	limit := 1
	for params := (ListKeysParams{Limit: &limit}); ; {
		got, err := client.ListKeysWithResponse(context.Background(), &params)
		want(err, got, http.StatusOK)
		for _, key := range got.JSON200.Data {
			if key.Id == id && key.ExpiresAt == nil && !key.CreatedAt.IsZero() {
				return
			}
		}
		if !got.JSON200.HasMore {
			log.Fatal("the key is not in the list")
		}
		params.Cursor = got.JSON200.NextCursor
	}
}

// refused requests a key with scopes that the sender lacks.
func refused(client *ClientWithResponses) {
	got, err := client.CreateKeyWithResponse(context.Background(), nil, CreateKey{Name: "more", Scopes: []Scope{InvoicesRead}})
	want(err, got, http.StatusForbidden)
	if got.JSON403.Error.Code != FORBIDDEN {
		log.Fatal(got.JSON403.Error.Code)
	}
}

// conflict sends an Idempotency-Key again for a different key.
func conflict(client *ClientWithResponses) {
	once := "5a1d4f3e"
	first, err := client.CreateKeyWithResponse(context.Background(), &CreateKeyParams{IdempotencyKey: &once}, CreateKey{Name: "one", Scopes: []Scope{FilesRead}})
	want(err, first, http.StatusCreated)
	got, err := client.CreateKeyWithResponse(context.Background(), &CreateKeyParams{IdempotencyKey: &once}, CreateKey{Name: "another", Scopes: []Scope{FilesRead}})
	want(err, got, http.StatusConflict)
	if got.JSON409.Error.Code != CONFLICT {
		log.Fatal(got.JSON409.Error.Code)
	}
}

// changed renames a key, with an outdated ETag and then with the current one.
func changed(client *ClientWithResponses, id KeyId) {
	other, name := `"other"`, "renamed"
	got, err := client.UpdateKeyWithResponse(context.Background(), id, &UpdateKeyParams{IfMatch: &other}, UpdateKey{Name: &name})
	want(err, got, http.StatusPreconditionFailed)
	if got.JSON412.Error.Code != PRECONDITIONFAILED {
		log.Fatal(got.JSON412.Error.Code)
	}
	read, err := client.GetKeyWithResponse(context.Background(), id)
	want(err, read, http.StatusOK)
	tag := read.HTTPResponse.Header.Get("ETag")
	got, err = client.UpdateKeyWithResponse(context.Background(), id, &UpdateKeyParams{IfMatch: &tag}, UpdateKey{Name: &name})
	want(err, got, http.StatusOK)
	if got.JSON200.Name != name {
		log.Fatal(got.JSON200.Name)
	}
}

// hook creates a webhook for the host's own event type.
func hook(client *ClientWithResponses) {
	got, err := client.CreateWebhookWithResponse(context.Background(), nil, CreateWebhook{Url: "https://example.com/hooks", Events: WebhookEvents{SubscribedTypeInvoicesPaid}})
	want(err, got, http.StatusCreated)
	if got.JSON201.Secret == "" || got.JSON201.Events[0] != SubscribedTypeInvoicesPaid {
		log.Fatal("the created webhook is not the requested one")
	}
	deliveries, err := client.ListDeliveriesWithResponse(context.Background(), got.JSON201.Id, nil)
	want(err, deliveries, http.StatusOK)
	if len(deliveries.JSON200.Data) != 0 {
		log.Fatal("a new webhook has deliveries")
	}
	since := TimeBound("2026-01-01")
	events, err := client.ListEventsWithResponse(context.Background(), &ListEventsParams{Since: &since})
	want(err, events, http.StatusOK)
	if len(events.JSON200.Data) != 0 || events.JSON200.HasMore {
		log.Fatal("a new account has events")
	}
	body, err := client.GetEventBodyWithResponse(context.Background(), "evt_1")
	want(err, body, http.StatusNotFound)
}

func want(err error, got interface{ StatusCode() int }, status int) {
	if err != nil {
		log.Fatal(err)
	}
	if got.StatusCode() != status {
		log.Output(2, fmt.Sprintf("got %d, want %d", got.StatusCode(), status))
		os.Exit(1)
	}
}
