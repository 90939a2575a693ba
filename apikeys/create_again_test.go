package apikeys_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

func TestMaxPerAccount(t *testing.T) {
	for configured, most := range map[int]int{0: 1000, 3: 3, -1: 1100} {
		service := newService(t, memory.New(), apikeys.Config{MaxPerAccount: configured})
		make := func() error {
			_, token, err := service.Create(t.Context(), account, apikeys.CreateParams{Name: "a", Scopes: readFiles})
			if (err == nil) == (token.Reveal() == "") {
				t.Errorf("token %q with %v", token.Reveal(), err)
			}
			return err
		}
		for range most {
			if err := make(); err != nil {
				t.Fatal(err)
			}
		}
		err := make()
		if configured < 0 {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if want := fmt.Sprintf("create API key: limit reached: an account may have at most %d API keys", most); !errors.Is(err, apierr.ErrLimit) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if _, _, err := service.Create(t.Context(), "another", apikeys.CreateParams{Name: "a", Scopes: readFiles}); err != nil {
			t.Error(err)
		}
	}
}

// A repeated request creates nothing.
func TestCreate_Repeated_CreatesNothing(t *testing.T) { testbubble.Run(t, testCreateAgain) }

func testCreateAgain(t *testing.T) {
	service := newService(t, memory.New(), apikeys.Config{})
	params := apikeys.CreateParams{Name: "a", Scopes: scopes.Of(scopes.FilesRead, scopes.FilesWrite), ExpiresAt: time.Now().Add(48 * time.Hour), IdempotencyKey: "request-1"}
	again := func() (apikeys.Key, error) {
		t.Helper()
		key, token, err := service.Create(t.Context(), account, params)
		if token.Reveal() != "" {
			t.Error("a request made again returns a token")
		}
		return key, err
	}
	made, _, err := service.Create(t.Context(), account, params)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(24 * time.Hour)
	if key, err := again(); err != nil || !cmp.Equal(made, key, byValue) {
		t.Errorf("got %+v, %v", key, err)
	}
	made, err = service.Update(t.Context(), account, made.ID, rename("renamed"))
	if err != nil {
		t.Fatal(err)
	}
	if key, err := again(); err != nil || !cmp.Equal(made, key, byValue) {
		t.Errorf("got %+v, %v", key, err)
	}
	for _, change := range []func(*apikeys.CreateParams){
		func(p *apikeys.CreateParams) { p.Name = "renamed" },
		func(p *apikeys.CreateParams) { p.Scopes = readFiles },
		func(p *apikeys.CreateParams) { p.Scopes = scopes.Of(scopes.FilesWrite, scopes.FilesRead) },
		func(p *apikeys.CreateParams) { p.ExpiresAt = time.Time{} },
		func(p *apikeys.CreateParams) { p.ExpiresAt = p.ExpiresAt.Add(time.Millisecond) },
	} {
		other := params
		change(&other)
		if key, _, err := service.Create(t.Context(), account, other); !errors.Is(err, apierr.ErrIdempotencyMismatch) || key.ID != "" {
			t.Errorf("%+v: got %+v, %v", other, key, err)
		}
	}
	same := params
	same.ExpiresAt = params.ExpiresAt.Add(time.Microsecond).In(time.FixedZone("", 3600)) // the same millisecond
	if key, token, err := service.Create(t.Context(), account, same); err != nil || key.ID != made.ID || token.Reveal() != "" {
		t.Errorf("got %+v, %v", key, err)
	}
	if _, token, err := service.Create(t.Context(), "another", params); err != nil || token.Reveal() == "" {
		t.Errorf("another account's: %v", err)
	}
	if err := service.Delete(t.Context(), account, made.ID, apikeys.DeleteParams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := again(); !errors.Is(err, apierr.ErrCreatedThenDeleted) {
		t.Errorf("what is deleted: %v", err)
	}
	if _, err := service.Get(t.Context(), account, made.ID); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("a request made again revived a key: %v", err)
	}
	time.Sleep(time.Millisecond)
	if _, token, err := service.Create(t.Context(), account, params); err != nil || token.Reveal() == "" {
		t.Errorf("after 24 hours: %v", err)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	service, _ := newClocked(t)
	params := apikeys.CreateParams{Name: "a", Scopes: readFiles}
	for _, good := range []string{"", "!", "~", `"quoted"`, strings.Repeat("x", 128)} {
		params.IdempotencyKey = good
		if wrong := service.Validate(params); wrong != nil {
			t.Errorf("%q: %v", good, wrong)
		}
	}
	for _, bad := range []string{" ", "a b", "a\t", "\x7f", "é", "\xff", strings.Repeat("x", 129)} {
		params.IdempotencyKey = bad
		var invalid *apierr.ValidationError
		if _, _, err := service.Create(t.Context(), account, params); !errors.As(err, &invalid) || invalid.Field != "Idempotency-Key" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// If several calls run concurrently with the same request, one of them creates a key and none
// exceeds the limit, even if only one more key is allowed.
func TestCreate_Concurrent_CreatesOne(t *testing.T) {
	service := newService(t, memory.New(), apikeys.Config{MaxPerAccount: 1})
	params := apikeys.CreateParams{Name: "a", Scopes: readFiles, IdempotencyKey: "request"}
	var tokens atomic.Int32
	var ids sync.Map
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			key, token, err := service.Create(t.Context(), account, params)
			if err != nil {
				t.Error(err)
			}
			if token.Reveal() != "" {
				tokens.Add(1)
			}
			ids.Store(key.ID, true)
		})
	}
	all.Wait()
	n := 0
	ids.Range(func(any, any) bool { n++; return true })
	if tokens.Load() != 1 || n != 1 {
		t.Errorf("%d tokens and %d ids, want one of each", tokens.Load(), n)
	}
}
