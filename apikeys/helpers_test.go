package apikeys_test

import (
	"context"
	"errors"
	"hash/crc32"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
)

const account = "acct_1"

var (
	noon      = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	readFiles = scopes.Of(scopes.FilesRead)
	byValue   = cmpopts.EquateComparable(scopes.Set{})
)

// A spy is a store that records the calls to it.
type spy struct {
	driver.KeyStore

	mu     sync.Mutex
	reads  int               // calls to KeyByHash
	writes int               // calls that change data, except RecordKeyUse
	uses   [][]driver.KeyUse // successful calls to RecordKeyUse
	refuse error             // error that RecordKeyUse returns
}

func newSpy() *spy { return &spy{KeyStore: memory.New()} }

func (s *spy) count(n *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

func (s *spy) KeyByHash(ctx context.Context, hash driver.Hash) (apikeys.Key, error) {
	s.count(&s.reads)
	return s.KeyStore.KeyByHash(ctx, hash)
}

func (s *spy) CreateKey(ctx context.Context, key apikeys.Key, options driver.CreateOptions) error {
	s.count(&s.writes)
	return s.KeyStore.CreateKey(ctx, key, options)
}

func (s *spy) UpdateKey(ctx context.Context, account, id string, change func(*apikeys.Key, *audit.Entry) error) (apikeys.Key, error) {
	s.count(&s.writes)
	return s.KeyStore.UpdateKey(ctx, account, id, change)
}

func (s *spy) DeleteKey(ctx context.Context, account, id string, check func(apikeys.Key) error, entry audit.Entry) error {
	s.count(&s.writes)
	return s.KeyStore.DeleteKey(ctx, account, id, check, entry)
}

func (s *spy) RecordKeyUse(ctx context.Context, uses []driver.KeyUse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return s.refuse
	}
	s.uses = append(s.uses, append([]driver.KeyUse(nil), uses...))
	return s.KeyStore.RecordKeyUse(ctx, uses)
}

// fail makes RecordKeyUse return err from now on.
func (s *spy) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

// recorded returns the arguments of the successful calls to RecordKeyUse so far.
func (s *spy) recorded() [][]driver.KeyUse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][]driver.KeyUse(nil), s.uses...)
}

// newService returns a service that is closed when the test ends.
func newService(tb testing.TB, store driver.KeyStore, config apikeys.Config) *apikeys.KeyService {
	tb.Helper()
	service, err := apikeys.New(store, config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(service.Close)
	return service
}

// newClocked returns a service that uses a memory store, and its clock, which is set to noon.
func newClocked(tb testing.TB) (*apikeys.KeyService, *testclock.Clock) {
	tb.Helper()
	c := testclock.At(noon)
	return newService(tb, memory.New(), apikeys.Config{Now: c.Now}), c
}

// newSpied returns a spy, a service that uses it, and a key with its token.
func newSpied(tb testing.TB) (*spy, *apikeys.KeyService, apikeys.Key, apikeys.Token) {
	tb.Helper()
	store := newSpy()
	service := newService(tb, store, apikeys.Config{})
	key, token := create(tb, service, time.Time{})
	return store, service, key, token
}

// create creates a key that can read files and expires at expiresAt.
func create(tb testing.TB, s *apikeys.KeyService, expiresAt time.Time) (apikeys.Key, apikeys.Token) {
	tb.Helper()
	key, token, err := s.Create(tb.Context(), account, apikeys.CreateParams{Name: "test", Scopes: readFiles, ExpiresAt: expiresAt})
	if err != nil {
		tb.Fatal(err)
	}
	return key, token
}

func rotate(tb testing.TB, s *apikeys.KeyService, id string, grace time.Duration) (apikeys.Key, apikeys.Token) {
	tb.Helper()
	key, token, err := s.Rotate(tb.Context(), account, id, apikeys.RotateParams{Grace: grace})
	if err != nil {
		tb.Fatal(err)
	}
	return key, token
}

// turn enables or disables a key.
func turn(tb testing.TB, s *apikeys.KeyService, id string, on bool) {
	tb.Helper()
	if _, err := s.Update(tb.Context(), account, id, apikeys.UpdateParams{Enabled: &on}); err != nil {
		tb.Fatal(err)
	}
}

// accepted fails the test unless the token is valid, and returns its principal.
func accepted(tb testing.TB, s *apikeys.KeyService, token string) auth.Principal {
	tb.Helper()
	p, err := s.Verify(tb.Context(), token)
	if err != nil {
		tb.Errorf("the token is refused: %v", err)
	}
	return p
}

// refused fails the test unless the token is refused with the same error text as every other
// invalid token.
func refused(tb testing.TB, s *apikeys.KeyService, token string) {
	tb.Helper()
	p, err := s.Verify(tb.Context(), token)
	if !errors.Is(err, auth.ErrUnauthorized) || p != (auth.Principal{}) {
		tb.Errorf("Verify(%q) = %v, %v; want ErrUnauthorized", token, p, err)
	}
}

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// forge builds a token with a correct checksum from the documented format.
func forge(prefix, random string) string { return summed(prefix + "_" + random) }

// summed returns text with its checksum appended: the CRC-32 of text as six base62 digits, most
// significant first.
func summed(text string) string {
	sum := crc32.ChecksumIEEE([]byte(text))
	digits := ""
	for range 6 {
		digits = string(base62[sum%62]) + digits
		sum /= 62
	}
	return text + digits
}

// numbered returns a different token for each i.
func numbered(i int) string {
	random := []byte(strings.Repeat("0", 32))
	for at := len(random) - 1; i > 0; at-- {
		random[at] = base62[i%62]
		i /= 62
	}
	return forge("sak", string(random))
}
