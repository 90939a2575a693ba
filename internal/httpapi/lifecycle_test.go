package httpapi_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func TestNewHandler_InvalidConfig_ReturnsError(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "storage.db")
	tests := []struct {
		name   string
		config storageapi.Config
		want   []string
	}{
		{"nothing", storageapi.Config{}, []string{"Path", "Store"}},
		{"both", storageapi.Config{Path: path, Store: memory.New()}, []string{"Path", "Store"}},
		{"no directory", storageapi.Config{Path: filepath.Join(dir, "none", "x.db")}, []string{"Path", "none/x.db"}},
		{"a directory", storageapi.Config{Path: dir}, []string{"Path", dir}},
		{"a path's prefix", storageapi.Config{Path: path, Prefix: "v2/"}, []string{"Config.Prefix"}},
		{"prefix", storageapi.Config{Path: path, Keys: apikeys.Config{Prefix: "A B"}}, []string{"Keys", "Prefix"}},
		{"concurrency", storageapi.Config{Path: path, Webhooks: webhooks.Config{Concurrency: webhooks.Concurrency{Total: -1}}}, []string{"Webhooks", "Concurrency"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			api, err := storageapi.NewHandler(test.config)
			if api != nil || err == nil {
				t.Fatalf("got %v, error %v", api, err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got error %q, want one with %q", err, want)
				}
			}
		})
	}
	// NewHandler must have closed everything that it opened before the failure.
	newAPI(t, storageapi.Config{Path: path})
}

// TestPath opens a file, closes it, and opens it again.
func TestPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	h := serve(t, storageapi.Config{Path: path})
	id, token := h.key(alice, scopes.AccountRead)
	before := h.do("GET", keysPath+"/"+id, token, "").want(200, "")
	if err := h.api.Close(); err != nil {
		t.Fatal(err)
	}
	if file, err := os.Stat(path); err != nil || file.Mode() != 0o600 {
		t.Errorf("got %v, error %v, want mode 0600", file, err)
	}
	again := serve(t, storageapi.Config{Path: path})
	after := again.do("GET", keysPath+"/"+id, again.admin(alice), "").want(200, "")
	if before.body != after.body || strings.Contains(after.body, `"lastUsedAt":null`) {
		t.Errorf("before %s\nafter %s", before.body, after.body)
	}
}

// Close must close the store only if the Handler opened it.
func TestClose_HostsStore_StaysOpen(t *testing.T) {
	store := memory.New()
	api := newAPI(t, storageapi.Config{Store: store})
	if err := api.Close(); err != nil {
		t.Fatal(err)
	}
	again := serve(t, storageapi.Config{Store: store})
	again.do("GET", keysPath, again.admin(alice), "").want(200, "")
}

func TestRunAndClose(t *testing.T) {
	run := func(ctx context.Context, api *storageapi.Handler) chan error {
		ended := make(chan error, 1)
		go func() { ended <- api.Run(ctx) }()
		synctest.Wait()
		return ended
	}
	newAPI := func(t *testing.T) *storageapi.Handler {
		return newAPI(t, storageapi.Config{Store: memory.New()})
	}
	want := func(t *testing.T, ended chan error, want error) {
		t.Helper()
		if err := <-ended; !errors.Is(err, want) {
			t.Errorf("Run: got error %v, want %v", err, want)
		}
	}
	inBubble := func(name string, test func(*testing.T)) {
		t.Run(name, func(t *testing.T) { testbubble.Run(t, test) })
	}
	inBubble("context ends Run", func(t *testing.T) {
		api := newAPI(t)
		ctx, cancel := context.WithCancel(t.Context())
		first := run(ctx, api)
		cancel()
		want(t, first, nil)
		second := run(t.Context(), api) // Run may be called again after it has returned
		if err := api.Close(); err != nil {
			t.Fatal(err)
		}
		want(t, second, nil)
	})
	inBubble("Close ends Run", func(t *testing.T) {
		api := newAPI(t)
		first := run(t.Context(), api)
		want(t, run(t.Context(), api), webhooks.ErrRunning)
		if err := api.Close(); err != nil {
			t.Fatal(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := api.Webhooks.Run(ended); err != nil {
			t.Errorf("Close returned before Run had ended: %v", err)
		}
		want(t, first, nil)
	})
	inBubble("Run after Close", func(t *testing.T) {
		api := newAPI(t)
		if err := api.Close(); err != nil {
			t.Fatal(err)
		}
		want(t, run(t.Context(), api), storageapi.ErrClosed)
	})
	inBubble("all at once", func(t *testing.T) {
		api := newAPI(t)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := api.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			all.Go(func() {
				if err := api.Run(t.Context()); err != nil && !errors.Is(err, webhooks.ErrRunning) && !errors.Is(err, storageapi.ErrClosed) {
					t.Errorf("Run: %v", err)
				}
			})
		}
		all.Wait()
	})
}

// TestLogger checks that all parts log to Config.Logger, or to slog.Default if it is not set.
func TestLogger(t *testing.T) {
	for _, byDefault := range []bool{false, true} {
		faults, log := newFaulty(), new(testlog.Book)
		config := storageapi.Config{Store: faults, Logger: log.Logger()}
		if byDefault {
			before := slog.Default()
			slog.SetDefault(config.Logger)
			t.Cleanup(func() { slog.SetDefault(before) })
			config.Logger = nil
		}
		api, err := storageapi.NewHandler(config)
		if err != nil {
			t.Fatal(err)
		}
		h := mount(t, api, api)
		_, token := h.key(alice, scopes.AccountRead)
		h.do("GET", keysPath, token, "").want(200, "")
		faults.before = func(method string) error { return errors.New(method + " is out of order") }
		h.do("GET", keysPath, token, "").want(500, "INTERNAL_ERROR")
		if err := api.Close(); err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{"KeyByHash", "RecordKeyUse"} {
			if !strings.Contains(log.String(), method+" is out of order") {
				t.Errorf("by default %v: nothing about %s in log: %s", byDefault, method, log)
			}
		}
	}
}
