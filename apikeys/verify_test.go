package apikeys_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
)

func TestVerify_ReturnsCaller(t *testing.T) {
	service, _ := newClocked(t)
	granted := scopes.Of(scopes.SecretsWrite, scopes.FilesRead)
	until := noon.Add(time.Hour)
	key, token, err := service.Create(t.Context(), account, apikeys.CreateParams{Name: "x", Scopes: granted, ExpiresAt: until})
	if err != nil {
		t.Fatal(err)
	}
	want := auth.Principal{Account: account, KeyID: key.ID, Scopes: granted, ExpiresAt: until, Name: "x", Hint: token.Hint()}
	if got := accepted(t, service, token.Reveal()); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	_, lasting := create(t, service, time.Time{})
	if got := accepted(t, service, lasting.Reveal()); !got.ExpiresAt.IsZero() {
		t.Errorf("a key that never expires is said to at %v", got.ExpiresAt)
	}
}

func TestVerify_UnknownToken_IsRefused(t *testing.T) {
	service, _ := newClocked(t)
	create(t, service, time.Time{})
	refused(t, service, numbered(1))
}

func TestVerify_AtExpiry_IsRefused(t *testing.T) {
	service, clock := newClocked(t)
	_, token := create(t, service, noon.Add(time.Hour))
	_, lasting := create(t, service, time.Time{})

	clock.Set(noon.Add(time.Hour - time.Nanosecond))
	accepted(t, service, token.Reveal())
	clock.Set(noon.Add(time.Hour))
	refused(t, service, token.Reveal())
	clock.Set(noon.AddDate(500, 0, 0))
	refused(t, service, token.Reveal())
	accepted(t, service, lasting.Reveal())
}

func TestVerify_DeletedKey_IsRefusedAtOnce(t *testing.T) {
	service, _ := newClocked(t)
	key, token := create(t, service, time.Time{})
	_, other := create(t, service, time.Time{})
	_, rotated := rotate(t, service, key.ID, time.Hour)
	if err := service.Delete(t.Context(), account, key.ID, apikeys.DeleteParams{}); err != nil {
		t.Fatal(err)
	}
	refused(t, service, token.Reveal())
	refused(t, service, rotated.Reveal())
	accepted(t, service, other.Reveal())
}

// Requests that begin after Delete has returned are refused, even while others are being verified.
func TestDelete_DuringVerify_RefusesLaterRequests(t *testing.T) {
	service, _ := newClocked(t)
	for range 50 {
		key, token := create(t, service, time.Time{})
		deleted := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					var late bool
					select {
					case <-deleted:
						late = true
					default:
					}
					_, err := service.Verify(t.Context(), token.Reveal())
					if late && err == nil {
						t.Error("a deleted key is accepted")
					}
					if late {
						return
					}
				}
			})
		}
		if err := service.Delete(t.Context(), account, key.ID, apikeys.DeleteParams{}); err != nil {
			t.Error(err)
		}
		close(deleted)
		wg.Wait()
	}
}

// The contents of the store's file cannot be used as keys.
func TestVerify_StoredHash_IsRefused(t *testing.T) {
	service, _ := newClocked(t)
	key, token := create(t, service, time.Time{})
	sum := key.Hash.Sum[:]
	for _, text := range []string{
		string(sum), hex.EncodeToString(sum), strings.ToUpper(hex.EncodeToString(sum)), base64.StdEncoding.EncodeToString(sum),
		base64.RawURLEncoding.EncodeToString(sum), "sak_" + hex.EncodeToString(sum), forge("sak", hex.EncodeToString(sum)[:32]),
		key.ID, key.Hash.String(), token.String(), "[redacted]",
	} {
		refused(t, service, text)
	}
	// A stored hash cannot be used as a key ID.
	if _, err := service.Get(t.Context(), account, hex.EncodeToString(sum)); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("a hash is found as an id: %v", err)
	}
}

func TestVerify_StoreFails_ReturnsItsError(t *testing.T) {
	memory := memory.New()
	service := newService(t, memory, apikeys.Config{})
	_, token := create(t, service, time.Time{})

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := service.Verify(ctx, token.Reveal()); !errors.Is(err, context.Canceled) || errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("a cancelled context: %v", err)
	}
	if err := memory.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := service.Verify(t.Context(), token.Reveal())
	if !errors.Is(err, store.ErrClosed) || errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("a closed store: %v", err)
	}
	if strings.Contains(err.Error(), token.Reveal()) {
		t.Errorf("the error holds the token: %v", err)
	}
	refused(t, service, "typo") // typos cause no store lookup
}

// Verify must refuse the token if the store returns a key with another hash.
func TestVerify_StoreReturnsWrongKey_IsRefused(t *testing.T) {
	for name, key := range map[string]apikeys.Key{
		"another hash":           {ID: "key_1", Account: account, Scopes: readFiles, Hash: driver.Hash{Sum: [32]byte{1}}},
		"no hash":                {ID: "key_1", Account: account, Scopes: readFiles},
		"another, previous none": {ID: "key_1", Account: account, Scopes: readFiles, Hash: driver.Hash{Sum: [32]byte{1}}, PreviousExpiresAt: noon.AddDate(1, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			service := newService(t, answering(func(driver.Hash) apikeys.Key { return key }), apikeys.Config{})
			refused(t, service, numbered(1))
		})
	}
}

// answering is a store that returns the function's result for each hash.
type answering func(driver.Hash) apikeys.Key

func (answering) Capabilities() capability.Set { return capability.Set{} }

func (f answering) KeyByHash(_ context.Context, hash driver.Hash) (apikeys.Key, error) {
	return f(hash), nil
}
func (answering) CreateKey(context.Context, apikeys.Key, driver.CreateOptions) error { return nil }
func (answering) DeleteKey(context.Context, string, string, func(apikeys.Key) error, audit.Entry) error {
	return nil
}
func (answering) RecordKeyUse(context.Context, []driver.KeyUse) error              { return nil }
func (answering) KeyByID(context.Context, string, string) (k apikeys.Key, _ error) { return k, nil }
func (answering) ListKeys(context.Context, string, driver.ListQuery) ([]apikeys.Key, error) {
	return nil, nil
}
func (answering) ExpiringKeys(context.Context, driver.ExpiryQuery) ([]apikeys.Key, error) {
	return nil, nil
}
func (answering) UpdateKey(context.Context, string, string, func(*apikeys.Key, *audit.Entry) error) (k apikeys.Key, _ error) {
	return k, nil
}

func TestRecheck_RecordsNoUse(t *testing.T) {
	service, clock := newClocked(t)
	key, token := create(t, service, noon.Add(time.Hour))
	p := accepted(t, service, token.Reveal())
	recheck := func(want auth.Principal, value string) {
		t.Helper()
		got, err := service.Recheck(t.Context(), p, value)
		if got != want || (want == auth.Principal{}) != errors.Is(err, auth.ErrUnauthorized) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	recheck(p, token.Reveal())
	recheck(auth.Principal{}, token.Reveal()+"x")
	recheck(auth.Principal{}, numbered(1))

	_, fresh, err := service.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{Grace: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	replaced := p
	replaced.Replaced, replaced.ExpiresAt = true, noon.Add(time.Minute)
	recheck(replaced, token.Reveal())
	p.Hint = fresh.Hint()
	recheck(p, fresh.Reveal())
	clock.Set(noon.Add(time.Minute))
	recheck(auth.Principal{}, token.Reveal())
	clock.Set(noon.Add(time.Hour))
	recheck(auth.Principal{}, fresh.Reveal())
	clock.Set(noon)
	if err := service.Delete(t.Context(), account, key.ID, apikeys.DeleteParams{}); err != nil {
		t.Fatal(err)
	}
	recheck(auth.Principal{}, fresh.Reveal())
}
