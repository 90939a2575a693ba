package apikeys_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/driver"
)

// gated is a store whose RecordKeyUse blocks until the gate is opened.
type gated struct {
	*spy
	entered, open chan struct{}
}

func newGated() *gated { return &gated{newSpy(), make(chan struct{}), make(chan struct{})} }

func (s *gated) RecordKeyUse(ctx context.Context, uses []driver.KeyUse) error {
	close(s.entered)
	<-s.open
	return s.spy.RecordKeyUse(ctx, uses)
}

func TestClose_PendingUses_AreWritten(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, service, key, token := newSpied(t)
		accepted(t, service, token.Reveal())
		used := lastUse(t, service, key.ID)
		service.Close()
		service.Close()
		if got := store.recorded(); len(got) != 1 || len(got[0]) != 1 {
			t.Fatalf("recorded %v", got)
		}
		// From now on keys are verified, but their uses are not recorded.
		time.Sleep(time.Hour)
		accepted(t, service, token.Reveal())
		time.Sleep(time.Hour)
		service.Close()
		if at := lastUse(t, service, key.ID); at != used || len(store.recorded()) != 1 {
			t.Errorf("last use %v, want %v; recorded %v", at, used, store.recorded())
		}
	})
}

// When Close returns, the service no longer uses the store, so the store can be closed next.
func TestClose_DuringWrite_Waits(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := newGated()
		service := newService(t, store, apikeys.Config{})
		_, token := create(t, service, time.Time{})
		accepted(t, service, token.Reveal())
		<-store.entered
		closed := make(chan int)
		go func() {
			service.Close()
			closed <- len(store.recorded())
		}()
		for range 100 { // time for Close to return, in case it does not wait for the write
			runtime.Gosched()
		}
		close(store.open)
		if <-closed != 1 {
			t.Error("Close returned before the write was done")
		}
	})
}

func TestUses_WriteFails_AreWrittenAgain(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		var log bytes.Buffer
		store := newSpy()
		service := newService(t, store, apikeys.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		key, token := create(t, service, time.Time{})
		store.fail(errors.New("no space left on device"))
		accepted(t, service, token.Reveal())
		used := lastUse(t, service, key.ID)
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if !bytes.Contains(log.Bytes(), []byte("no space left on device")) {
			t.Errorf("the failure is not logged: %q", &log)
		}
		if at := lastUse(t, service, key.ID); at != used {
			t.Errorf("after a failed write the last use is %v, was %v", at, used)
		}
		store.fail(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := store.recorded(); len(got) != 1 || len(got[0]) != 1 || got[0][0].At != used {
			t.Errorf("recorded %v", got)
		}
	})
}

// halted is a store that has stopped writing.
type halted struct{ *spy }

func (halted) Capabilities() capability.Set {
	return capability.Set{Halted: func() error { return errors.New("input/output error") }}
}

// A halted store causes a single log line, no matter how long it stays halted.
func TestUses_StoreHalts_LogsOneLine(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		var log bytes.Buffer
		store := newSpy()
		service := newService(t, halted{store}, apikeys.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		_, token := create(t, service, time.Time{})
		store.fail(errors.New("read-only"))
		for range 60 {
			accepted(t, service, token.Reveal())
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		if n := bytes.Count(log.Bytes(), []byte("\n")); n != 1 {
			t.Errorf("%d lines:\n%s", n, &log)
		}
	})
}

// Even if the store keeps failing, Close returns and leaves no goroutine behind.
func TestClose_StoreKeepsFailing_Returns(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := newSpy()
		service := newService(t, store, apikeys.Config{Logger: slog.New(slog.DiscardHandler)})
		_, token := create(t, service, time.Time{})
		accepted(t, service, token.Reveal())
		store.fail(errors.New("broken"))
		service.Close()
		store.fail(nil)
		time.Sleep(time.Hour)
		if got := store.recorded(); len(got) != 0 {
			t.Errorf("recorded %v after Close", got)
		}
	})
}

func TestUsesTakeBoundedMemory(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		const most = 65536
		store := newSpy()
		store.KeyStore = answering(func(hash driver.Hash) apikeys.Key {
			return apikeys.Key{ID: string(hash.Sum[:]), Account: account, Scopes: readFiles, Hash: hash}
		})
		service := newService(t, store, apikeys.Config{})
		for i := range most + 1000 {
			accepted(t, service, numbered(i))
		}
		service.Close()
		total := 0
		for _, batch := range store.recorded() {
			total += len(batch)
		}
		// The service may miss a use if two keys share a slot of the seen table.
		if total > most || total < most*9/10 {
			t.Errorf("%d uses were remembered, want at most %d", total, most)
		}
	})
}

func TestUses_DeletedKey_IsNotRevived(t *testing.T) {
	service, _ := newClocked(t)
	key, token := create(t, service, time.Time{})
	accepted(t, service, token.Reveal())
	if err := service.Delete(t.Context(), account, key.ID, apikeys.DeleteParams{}); err != nil {
		t.Fatal(err)
	}
	service.Close()
	refused(t, service, token.Reveal())
	if _, err := service.Get(t.Context(), account, key.ID); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("Get: %v", err)
	}
}

// slow is a store that calls the function meanwhile during each read of a key by ID and of a list.
type slow struct {
	*spy
	meanwhile func()
}

func (s *slow) KeyByID(ctx context.Context, account, id string) (apikeys.Key, error) {
	key, err := s.spy.KeyByID(ctx, account, id)
	s.meanwhile()
	return key, err
}

func (s *slow) ListKeys(ctx context.Context, account string, page driver.ListQuery) ([]apikeys.Key, error) {
	keys, err := s.spy.ListKeys(ctx, account, page)
	s.meanwhile()
	return keys, err
}

// If uses are written while a key is being read, the key's last use must not go back.
func TestUses_WrittenDuringRead_AreNotSetBack(t *testing.T) {
	for name, written := range map[string]func(*apikeys.KeyService, func()){
		"at the end":                    func(s *apikeys.KeyService, _ func()) { s.Close() },
		"at the end, which comes twice": func(s *apikeys.KeyService, _ func()) { s.Close(); s.Close() },
		"before others, and at the end": func(s *apikeys.KeyService, others func()) { time.Sleep(time.Minute); others(); s.Close() },
		"before others, for long": func(_ *apikeys.KeyService, others func()) {
			others()
			time.Sleep(time.Minute)
			others()
			time.Sleep(time.Hour)
		},
	} {
		for _, list := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/list=", list), func(t *testing.T) {
				testbubble.Run(t, func(t *testing.T) {
					store := &slow{spy: newSpy()}
					service := newService(t, store, apikeys.Config{})
					key, token := create(t, service, time.Time{})
					_, other := create(t, service, time.Time{})
					accepted(t, service, token.Reveal())
					used := time.Now().UTC().Truncate(time.Millisecond)
					store.meanwhile = func() { written(service, func() { accepted(t, service, other.Reveal()) }) }
					var got []apikeys.Key
					var err error
					if list {
						var page apikeys.KeyPage
						page, err = service.List(t.Context(), account, apikeys.KeyQuery{Limit: 2})
						got = page.Keys
					} else {
						got = make([]apikeys.Key, 1)
						got[0], err = service.Get(t.Context(), account, key.ID)
					}
					last := got[len(got)-1] // the newest key comes first
					if err != nil || last.ID != key.ID || !last.LastUsedAt.Equal(used) {
						t.Errorf("got %+v, %v; want a use at %v", last, err, used)
					}
					service.Close()
				})
			})
		}
	}
}

func TestConcurrentUsesAndClose(t *testing.T) {
	store := newSpy()
	service := newService(t, store, apikeys.Config{})
	var wg sync.WaitGroup
	for range 4 {
		key, token := create(t, service, time.Time{})
		for range 2 {
			wg.Go(func() {
				for range 200 {
					accepted(t, service, token.Reveal())
					lastUse(t, service, key.ID)
				}
			})
		}
	}
	wg.Go(service.Close)
	wg.Go(service.Close)
	wg.Wait()
}
