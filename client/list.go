package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strconv"
)

// A Page is a page of a list.
type Page[T any] struct {
	Data       []T    `json:"data"`
	NextCursor string `json:"nextCursor"` // where the next page begins; empty if there is none
	HasMore    bool   `json:"hasMore"`
}

// list returns a page of the list at a path. query is a struct whose JSON members are the query
// parameters.
func list[T any](ctx context.Context, c *Client, path string, query any) (Page[T], error) {
	values, err := parameters(query)
	if err != nil {
		return Page[T]{}, fmt.Errorf("GET %s: %w", path, err)
	}
	return get[Page[T]](ctx, c, path+"?"+values.Encode())
}

// all returns an iterator over the items of all pages. It stops after the first error.
func all[T any](ctx context.Context, c *Client, path string, query any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		values, err := parameters(query)
		if err != nil {
			yield(none, fmt.Errorf("GET %s: %w", path, err))
			return
		}
		for {
			page, err := get[Page[T]](ctx, c, path+"?"+values.Encode())
			if err == nil && page.HasMore && page.NextCursor == values.Get("cursor") {
				err = fmt.Errorf("GET %s: %w", path, errors.New("the next page has no cursor of its own"))
			}
			for _, item := range page.Data {
				if !yield(item, nil) {
					return
				}
			}
			if err != nil {
				yield(none, err)
			}
			if err != nil || !page.HasMore {
				return
			}
			values.Set("cursor", page.NextCursor)
		}
	}
}

// parameters returns the members of a query as query parameters, with a limit of 100 by default.
func parameters(query any) (url.Values, error) {
	values := url.Values{"limit": {"100"}}
	data, err := json.Marshal(query)
	if err != nil {
		return nil, err
	}
	var members map[string]any
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	for name, member := range members {
		switch member := member.(type) {
		case string:
			values.Set(name, member)
		case bool:
			values.Set(name, strconv.FormatBool(member))
		case float64:
			values.Set(name, strconv.FormatFloat(member, 'f', -1, 64))
		case []any:
			for _, item := range member {
				values.Add(name, fmt.Sprint(item))
			}
		}
	}
	return values, nil
}
