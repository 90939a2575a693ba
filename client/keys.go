package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// A Key is an API key. A zero time means never, and an empty string that the value is unknown.
type Key struct {
	ID            string         `json:"id"`
	Value         Secret         `json:"key,omitzero"` // only in the results of CreateKey and RotateKey
	Name          string         `json:"name"`
	Enabled       bool           `json:"enabled,omitzero"` // absent, and so false, in the result of CreateKey
	Scopes        []string       `json:"scopes"`
	UnknownScopes []string       `json:"unknownScopes,omitzero"` // scopes that the service no longer has
	Resources     []string       `json:"resources,omitzero"`     // nil means no limit
	ExpiresAt     time.Time      `json:"expiresAt,omitzero"`
	CreatedAt     time.Time      `json:"createdAt"`
	Hint          string         `json:"hint,omitzero"`
	CreatedBy     *Creator       `json:"createdBy,omitzero"`
	LastUsedAt    time.Time      `json:"lastUsedAt,omitzero"`
	Previous      *PreviousValue `json:"previous,omitzero"` // nil unless a replaced value still works

	Labels map[string]string `json:"labels,omitzero"`

	AllowedNetworks []string     `json:"allowedNetworks,omitzero"` // in CIDR notation; nil means no limit
	RateLimit       int          `json:"rateLimit,omitzero"`       // requests per minute; 0 means no limit of its own
	LastUsedFrom    string       `json:"lastUsedFrom,omitzero"`    // a network in CIDR notation
	ScopesUsed      []ScopeUse   `json:"scopesUsed,omitzero"`
	NetworksUsed    []NetworkUse `json:"networksUsed,omitzero"` // latest first

	ETag string `json:"-"` // for [IfMatch]; empty in the results of CreateKey and Keys
}

func (k *Key) setETag(tag string) { k.ETag = tag }

// A ScopeUse is the last use of a scope by a key.
type ScopeUse struct {
	Scope      string `json:"scope"`
	LastUsedOn string `json:"lastUsedOn"` // a day in UTC, such as "2026-01-31"
}

// A NetworkUse is the last use of a key from a network.
type NetworkUse struct {
	Network    string `json:"network"`    // in CIDR notation
	LastUsedOn string `json:"lastUsedOn"` // a day in UTC, such as "2026-01-31"
}

// A Refusal is a request that was refused although its key is known.
type Refusal struct {
	At      time.Time `json:"at"`
	Outcome string    `json:"outcome"`          // why, such as "scope_missing", "wrong_network" or "limited"
	Route   string    `json:"route"`            // the method and the pattern of the route, never the path
	Missing string    `json:"missing,omitzero"` // the scopes or the resource that the request lacked
	Network string    `json:"network,omitzero"` // the sender's network, in CIDR notation
}

// A Creator identifies who created a key. Kind is "key", "host" or "person".
type Creator struct {
	Kind string `json:"kind"`
	ID   string `json:"id,omitzero"`
}

// A PreviousValue is the value of a key before its last rotation, during the grace period.
type PreviousValue struct {
	Hint       string    `json:"hint,omitzero"`
	ExpiresAt  time.Time `json:"expiresAt"`
	LastUsedAt time.Time `json:"lastUsedAt,omitzero"`
}

// An OwnKey is the key that a request carries.
type OwnKey struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Hint      string    `json:"hint,omitzero"` // the hint of the value in the request
	Scopes    []string  `json:"scopes"`
	Resources []string  `json:"resources,omitzero"` // nil means no limit
	ExpiresAt time.Time `json:"expiresAt,omitzero"` // when the value in the request expires
	Replaced  bool      `json:"replaced"`           // a rotation has replaced the value
}

// CreateKey are the parameters of a new key.
type CreateKey struct {
	Name            string            `json:"name"`
	Scopes          []string          `json:"scopes"`
	Resources       []string          `json:"resources,omitzero"` // nil means no limit; can never be changed
	ExpiresAt       time.Time         `json:"expiresAt,omitzero"` // zero means never
	Labels          map[string]string `json:"labels,omitzero"`
	AllowedNetworks []string          `json:"allowedNetworks,omitzero"` // addresses or networks in CIDR notation; nil means no limit
	RateLimit       int               `json:"rateLimit,omitzero"`       // requests per minute; 0 means no limit of its own
}

// UpdateKey changes the fields that are set.
type UpdateKey struct {
	Name      Opt[string]            `json:"name,omitzero"`
	Enabled   Opt[bool]              `json:"enabled,omitzero"`
	ExpiresAt Opt[time.Time]         `json:"expiresAt,omitzero"` // null means never
	Labels    map[string]Opt[string] `json:"labels,omitzero"`    // Null removes a label; labels not in the map stay
}

// An Opt is a field of a change. The zero Opt leaves the field as it is.
type Opt[T any] struct {
	set   bool
	value *T
}

// Some sets a field to value.
func Some[T any](value T) Opt[T] { return Opt[T]{true, &value} }

// Null removes the value of a field.
func Null[T any]() Opt[T] { return Opt[T]{set: true} }

// IsZero reports whether the field stays as it is.
func (o Opt[T]) IsZero() bool { return !o.set }

// MarshalJSON returns the value or null.
func (o Opt[T]) MarshalJSON() ([]byte, error) { return json.Marshal(o.value) }

// A Rotation says how many seconds the previous value or secret works, up to a year. The zero
// Rotation means a day; Some(0) ends it at once, for a value that has leaked.
type Rotation struct {
	GraceSeconds Opt[int] `json:"graceSeconds,omitzero"`
}

// A KeyQuery selects keys. The zero value selects all.
type KeyQuery struct {
	Name        string    `json:"name,omitzero"`        // a part of the name, in upper or lower case
	Scopes      []string  `json:"scope,omitzero"`       // the key has all of these
	Labels      []string  `json:"label,omitzero"`       // the key has all of these; each is name=value
	UnusedSince time.Time `json:"unusedSince,omitzero"` // created before and not used since
}

const keysPath = "/api-keys"

func keyPath(id string) string { return keysPath + "/" + url.PathEscape(id) }

// CreateKey creates a key. The result is the only one that contains its value.
func (c *Client) CreateKey(ctx context.Context, p CreateKey, options ...CallOption) (Key, error) {
	return create[Key](ctx, c, keysPath, p, options)
}

// Keys returns an iterator over the keys, newest first. It stops after the first error.
func (c *Client) Keys(ctx context.Context, query KeyQuery) iter.Seq2[Key, error] {
	return all[Key](ctx, c, keysPath, query)
}

// Key returns a key.
func (c *Client) Key(ctx context.Context, id string) (Key, error) {
	return get[Key](ctx, c, keyPath(id))
}

// UpdateKey changes a key and returns it.
func (c *Client) UpdateKey(ctx context.Context, id string, p UpdateKey, options ...CallOption) (key Key, err error) {
	_, err = c.do(ctx, http.MethodPatch, keyPath(id), p, &key, true, options)
	return key, err
}

// RotateKey gives a key a new value, which only the result contains.
func (c *Client) RotateKey(ctx context.Context, id string, p Rotation, options ...CallOption) (key Key, err error) {
	_, err = c.do(ctx, http.MethodPost, keyPath(id)+"/rotate", p, &key, false, options)
	return key, err
}

// DeleteKey deletes a key. Its values stop working at once.
func (c *Client) DeleteKey(ctx context.Context, id string, options ...CallOption) error {
	return c.remove(ctx, keyPath(id), options)
}

// Refusals returns the last refused requests with a key, at most 100, latest first.
func (c *Client) Refusals(ctx context.Context, id string) ([]Refusal, error) {
	list, err := get[Page[Refusal]](ctx, c, keyPath(id)+"/refusals") // the list has only one page
	return list.Data, err
}

// OwnKey returns the client's own key.
func (c *Client) OwnKey(ctx context.Context) (OwnKey, error) {
	return get[OwnKey](ctx, c, keysPath+"/self")
}

// RevokeOwnKey revokes the value that the client uses: it deletes the key, unless a rotation has
// replaced the value.
func (c *Client) RevokeOwnKey(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodDelete, keysPath+"/self", nil, nil, false, nil)
	return err
}
