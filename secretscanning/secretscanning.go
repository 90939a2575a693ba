// Package secretscanning receives reports of leaked API keys from GitHub's secret scanning partner
// program, and revokes the keys:
//
//	handler, err := secretscanning.New(api.Keys, secretscanning.Config{PublicKey: lookUp, Revoke: true, Found: mailOwner})
//	mux.Handle("POST /github/leaks", handler)
//
// GitHub sends a report for each text in public code that matches a partner's pattern. Enroll with
// the pattern in docs/operations.md and the URL of the handler. For the protocol see
// https://docs.github.com/en/code-security/secret-scanning/secret-scanning-partner-program.
package secretscanning

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
)

// maxBody is the maximum size of a request body in bytes, enough for about 25,000 matches.
const maxBody = 4 << 20

// Keys finds and revokes values of API keys. [*apikeys.KeyService] implements it.
type Keys interface {
	Lookup(ctx context.Context, token string) (apikeys.Value, error)
	RevokeValue(ctx context.Context, token string) (apikeys.Value, error)
}

// A Config configures [New].
type Config struct {
	// PublicKey returns GitHub's public key with the given identifier, or nil if GitHub has no such
	// key. Take the keys from https://api.github.com/meta/public_keys/secret_scanning, see
	// [ParsePublicKeys], and cache them. For an unknown identifier, fetch them again, but at most
	// once a minute, because anyone can send an unknown identifier. If PublicKey returns an error,
	// the request is answered with 503. Required.
	PublicKey func(ctx context.Context, identifier string) (*ecdsa.PublicKey, error)

	// Revoke revokes each value found, see [apikeys.KeyService.RevokeValue]. If false, values are
	// only reported to Found.
	Revoke bool

	// Found is called for each match that is a value of an API key, before the request is answered.
	// If GitHub repeats a report, Found is called again. It may be nil if Revoke is set. Concurrent
	// requests call it concurrently. GitHub waits 30 seconds for the response.
	Found func(ctx context.Context, leak Leak)
}

// A Leak is a value of an API key that GitHub has found in public.
type Leak struct {
	Value  apikeys.Value // state before the revocation
	Type   string        // name of the pattern, as enrolled
	URL    string        // where the value was found; may be empty
	Source string        // kind of place where it was found, such as "commit" or "gist_content"

	// Err is why the value could not be revoked. It is nil if the value is revoked or Config.Revoke
	// is false.
	Err error
}

// New returns a handler for GitHub's reports. It answers 200 with a label for each match, which
// tells GitHub whether the match was the value of a key. Requests without a valid signature are
// answered 401 and have no effect. If a key cannot be read or revoked, the handler processes the
// remaining matches and then answers 503. New returns an error if config is invalid.
func New(keys Keys, config Config) (http.Handler, error) {
	switch {
	case keys == nil:
		return nil, errors.New("secretscanning: keys must not be nil")
	case config.PublicKey == nil:
		return nil, errors.New("secretscanning: Config.PublicKey must not be nil")
	case !config.Revoke && config.Found == nil:
		return nil, errors.New("secretscanning: set Config.Revoke, Config.Found or both")
	}
	return &handler{keys, config}, nil
}

type handler struct {
	keys   Keys
	config Config
}

// A match is one element of GitHub's request.
type match struct {
	Token  string `json:"token"`
	Type   string `json:"type"`
	URL    string `json:"url"`
	Source string `json:"source"`
}

// A label is one element of the response.
type label struct {
	TokenHash string `json:"token_hash"` // SHA-256, hexadecimal
	TokenType string `json:"token_type"`
	Label     string `json:"label"`
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		return
	} else if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	key, err := h.config.PublicKey(r.Context(), r.Header.Get("Github-Public-Key-Identifier"))
	if err != nil {
		http.Error(w, "the public key is not available; try again later", http.StatusServiceUnavailable)
		return
	}
	if !signed(key, body, r.Header.Get("Github-Public-Key-Signature")) {
		http.Error(w, "the signature is missing or invalid", http.StatusUnauthorized)
		return
	}
	var matches []match
	if json.Unmarshal(body, &matches) != nil {
		http.Error(w, "the body must be a JSON array of matches", http.StatusBadRequest)
		return
	}
	labels, err := h.handle(context.WithoutCancel(r.Context()), matches) // continue even if GitHub stops waiting
	if err != nil {
		http.Error(w, "some keys could not be read or revoked; send the report again", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(labels)
}

// signed reports whether signature, in base64, is a valid signature of the body's SHA-256 by key.
func signed(key *ecdsa.PublicKey, body []byte, signature string) bool {
	der, err := base64.StdEncoding.DecodeString(signature)
	digest := sha256.Sum256(body)
	return key != nil && err == nil && ecdsa.VerifyASN1(key, digest[:], der)
}

// handle revokes and reports the matches, and returns a label for each token. If matches fail, it
// continues with the others and returns the last error.
func (h *handler) handle(ctx context.Context, matches []match) (labels []label, failed error) {
	labels = []label{}
	done := make(map[string]bool)
	for _, m := range matches {
		if done[m.Token] {
			continue
		}
		done[m.Token] = true
		value, err := h.keys.Lookup(ctx, m.Token)
		found := !errors.Is(err, apierr.ErrNotFound)
		if found && err == nil {
			leak := Leak{Value: value, Type: m.Type, URL: m.URL, Source: m.Source}
			if h.config.Revoke {
				_, err = h.keys.RevokeValue(ctx, m.Token)
				if errors.Is(err, apierr.ErrNotFound) { // another call has revoked it meanwhile
					err = nil
				}
				leak.Err = err
			}
			if h.config.Found != nil {
				h.config.Found(ctx, leak)
			}
		}
		if found && err != nil {
			failed = err
			continue
		}
		sum := sha256.Sum256([]byte(m.Token))
		text := "false_positive"
		if found {
			text = "true_positive"
		}
		labels = append(labels, label{hex.EncodeToString(sum[:]), m.Type, text})
	}
	return labels, failed
}

// ParsePublicKeys parses the response of https://api.github.com/meta/public_keys/secret_scanning
// and returns the keys by identifier.
func ParsePublicKeys(body []byte) (map[string]*ecdsa.PublicKey, error) {
	var list struct {
		PublicKeys []struct {
			Identifier string `json:"key_identifier"`
			Key        string `json:"key"`
		} `json:"public_keys"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("secretscanning: public keys: %w", err)
	}
	if len(list.PublicKeys) == 0 {
		return nil, errors.New("secretscanning: the list of public keys is empty")
	}
	keys := make(map[string]*ecdsa.PublicKey)
	for _, k := range list.PublicKeys {
		block, _ := pem.Decode([]byte(k.Key))
		if block == nil {
			return nil, fmt.Errorf("secretscanning: public key %q is not PEM", k.Identifier)
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("secretscanning: public key %q: %w", k.Identifier, err)
		}
		key, ok := parsed.(*ecdsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("secretscanning: public key %q is not an ECDSA key", k.Identifier)
		}
		keys[k.Identifier] = key
	}
	return keys, nil
}
