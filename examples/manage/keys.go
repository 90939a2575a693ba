package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/storageapi/storageapi/auth"
)

// A key is an API key in the API's JSON format.
type key struct {
	ID         string     `json:"id"`
	Key        string     `json:"key"` // only in responses to a creation or rotation
	Name       string     `json:"name"`
	Scopes     []string   `json:"scopes"`
	ExpiresAt  *time.Time `json:"expiresAt"`
	CreatedAt  time.Time  `json:"createdAt"`
	LastUsedAt *time.Time `json:"lastUsedAt"`
	Previous   *struct {
		ExpiresAt  time.Time  `json:"expiresAt"`
		LastUsedAt *time.Time `json:"lastUsedAt"`
	} `json:"previous"` // the value before the last rotation, while it is valid
}

// A list is a page of a list, newest first.
type list[T any] struct {
	Data       []T     `json:"data"`
	NextCursor *string `json:"nextCursor"`
	HasMore    bool    `json:"hasMore"`
}

// all returns all items of a list. It reads page by page.
func all[T any](ctx context.Context, c client, path string) ([]T, error) {
	var whole []T
	for query := "?limit=100"; ; {
		var part list[T]
		if _, err := c.call(ctx, "GET", path+query, request{}, &part); err != nil {
			return nil, err
		}
		whole = append(whole, part.Data...)
		if !part.HasMore {
			return whole, nil
		}
		query = "?limit=100&cursor=" + url.QueryEscape(*part.NextCursor)
	}
}

func manageKeys(ctx context.Context, out io.Writer, admin client) error {
	fmt.Fprintln(out, "Create a key. To try again, use the same Idempotency-Key:")
	wanted := map[string]any{"name": "deploy", "scopes": []string{"files:read", "account:read"}}
	var made, again key
	if _, err := admin.call(ctx, "POST", "/v2/api-keys", request{body: wanted, idempotencyKey: "deploy-1"}, &made); err != nil {
		return err
	}
	if _, err := admin.call(ctx, "POST", "/v2/api-keys", request{body: wanted, idempotencyKey: "deploy-1"}, &again); err != nil {
		return err
	}
	fmt.Fprintf(out, "  %s, whose value was shown %v; and again %s, without it: %v\n", made.ID, made.Key != "", again.ID, again.Key == "")
	wanted["name"] = "another"
	_, err := admin.call(ctx, "POST", "/v2/api-keys", request{body: wanted, idempotencyKey: "deploy-1"}, nil)
	if err := refused(out, err, auth.CodeConflict); err != nil {
		return err
	}

	fmt.Fprintln(out, "Rename it, if nobody else changed it since it was read:")
	path := "/v2/api-keys/" + made.ID
	tag, err := admin.call(ctx, "GET", path, request{}, &made)
	if err != nil {
		return err
	}
	var renamed key
	if _, err := admin.call(ctx, "PATCH", path, request{body: map[string]string{"name": "deploy, EU"}, ifMatch: tag}, &renamed); err != nil {
		return err
	}
	fmt.Fprintf(out, "  %q\n", renamed.Name)
	_, err = admin.call(ctx, "PATCH", path, request{body: map[string]string{"name": "deploy, US"}, ifMatch: tag}, nil)
	if err := refused(out, err, auth.CodePreconditionFailed); err != nil {
		return err
	}

	fmt.Fprintln(out, "Rotate it, by itself. The old value lives on for an hour:")
	before := client{admin.base, again.Key}
	if before.key, err = rotate(ctx, admin, path, 3600); err != nil {
		return err
	}
	after := client{admin.base, ""}
	if after.key, err = rotate(ctx, before, path, 3600); err != nil {
		return err
	}
	keys, err := all[key](ctx, before, "/v2/api-keys")
	if err != nil {
		return err
	}
	for _, k := range keys {
		fmt.Fprintf(out, "  %s %q, old value live: %v\n", k.ID, k.Name, k.Previous != nil)
	}

	fmt.Fprintln(out, "Rotate it at once, because the value has leaked; then delete it:")
	if after.key, err = rotate(ctx, admin, path, 0); err != nil {
		return err
	}
	_, err = before.call(ctx, "GET", path, request{}, nil)
	if err := refused(out, err, auth.CodeUnauthorized); err != nil {
		return err
	}
	if _, err := after.call(ctx, "DELETE", path, request{}, nil); err != nil { // a key may delete itself
		return err
	}
	_, err = admin.call(ctx, "GET", path, request{}, nil)
	return refused(out, err, auth.CodeNotFound)
}

// rotate gives the key at path a new value and returns it.
func rotate(ctx context.Context, c client, path string, graceSeconds int) (string, error) {
	var rotated key
	_, err := c.call(ctx, "POST", path+"/rotate", request{body: map[string]int{"graceSeconds": graceSeconds}}, &rotated)
	return rotated.Key, err
}
