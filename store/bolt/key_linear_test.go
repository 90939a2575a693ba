package bolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/driver"
)

// The following types form an independent model of keys. A test compares the store's answers with
// the model.

// A keyOp is an operation on one of two keys and their four tokens. Each token may be or have been
// a value of either key.
type keyOp struct {
	kind    string // "verify", "create", "rotate", "change", "delete"
	key     int
	token   int
	now     int // time on the verifier's clock, in hours
	expires int // in hours; expiry of the key, or of the old token if rotated
	scope   scopes.Scope
}

// A keyState is the state of a key. The zero keyState means that there is no key.
type keyState struct {
	exists            bool
	current, previous int // indexes of tokens; previous is -1 if there is none
	expires, grace    int
	scope             scopes.Scope
}

type keysState [2]keyState

// Outcomes of changes whose commits failed, in addition to the outcomes of the model.
const (
	outcomeFailed  = "failed"   // no change was made
	outcomeInDoubt = "in doubt" // the change may have been made
)

// step applies an operation to the model. It returns the new state and the outcome.
func (s keysState) step(op keyOp) (keysState, string) {
	k := &s[op.key]
	holder := -1
	for i, other := range s {
		if other.exists && (other.current == op.token || other.previous == op.token) {
			holder = i
		}
	}
	switch {
	case op.kind == "verify":
		return s, s.verify(op)
	case op.kind == "create":
		if k.exists || holder >= 0 {
			return s, apierr.ErrExists.Error()
		}
		*k = keyState{true, op.token, -1, op.expires, 0, op.scope}
	case !k.exists:
		return s, apierr.ErrNotFound.Error()
	case op.kind == "rotate":
		if holder >= 0 && holder != op.key {
			return s, apierr.ErrExists.Error()
		}
		k.current, k.previous, k.grace = op.token, k.current, op.expires
	case op.kind == "change":
		k.scope, k.expires = op.scope, op.expires
	case op.kind == "delete":
		*k = keyState{}
	}
	return s, "done"
}

func (s keysState) verify(op keyOp) string {
	for i, k := range s {
		expires := 0
		switch {
		case k.exists && k.current == op.token:
			expires = k.expires
		case k.exists && k.previous == op.token:
			expires = min(k.grace, k.expires)
		default:
			continue
		}
		if op.now >= expires {
			break
		}
		return fmt.Sprint(i, scopes.Of(k.scope), expires, k.current != op.token)
	}
	return auth.ErrUnauthorized.Error()
}

var keysModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{keysState{}} },
	Step: func(state, input, output any) []any {
		before := state.(keysState)
		after, want := before.step(input.(keyOp))
		switch output {
		case want:
			return []any{after}
		case outcomeFailed:
			return []any{before}
		case outcomeInDoubt:
			return []any{before, after}
		}
		return nil
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %v", input, output) },
}).ToModel()

// hour returns the time n hours after the start of the test's clocks.
func hour(n int) time.Time { return time.Date(2026, 3, 1, n, 0, 0, 0, time.UTC) }

var errSync = errors.New("sync failed")

// A keyWorld is a store with concurrent clients that read and change keys, in a bubble. Clients
// pause at random, even in the middle of a read or a commit.
type keyWorld struct {
	store    *engine
	disk     boltfault.Disk
	services [5]*apikeys.KeyService // indexed by the hour that their clocks show
	tokens   [4]apikeys.Token
	clock    atomic.Int64 // orders calls and returns
	mu       sync.Mutex
	random   *rand.Rand
	history  []porcupine.Operation

	lateVersions bool // breaks the rules: readers call Version after the read
}

func (w *keyWorld) rand(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *keyWorld) pause() { time.Sleep(time.Duration(max(w.rand(30)-10, 0)) * time.Millisecond) }

// commit commits, or fails in one of several ways.
func (w *keyWorld) commit(commit func() error) error {
	w.pause()
	switch w.rand(60) {
	case 0, 1, 2, 3, 4, 5:
		return errFull
	case 6:
		return errSync // makes the store halt
	}
	err := commit()
	w.pause()
	if w.rand(60) == 0 {
		err = cmp.Or(err, errSync)
	}
	w.pause()
	return err
}

// do performs one operation as the given client.
func (w *keyWorld) do(client int, op keyOp) {
	call := w.clock.Add(1)
	var output string
	if op.kind == "verify" {
		output = w.verify(op)
	} else {
		switch err := w.change(op); {
		case err == nil:
			output = "done"
		case errors.Is(err, errSync):
			output = outcomeInDoubt
		case errors.Is(err, errFull), errors.Is(err, store.ErrReadOnly):
			output = outcomeFailed
		default:
			output = err.Error()
		}
	}
	end := w.clock.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, porcupine.Operation{ClientId: client, Input: op, Call: call, Output: output, Return: end})
}

func (w *keyWorld) verify(op keyOp) string {
	p, err := w.services[op.now].Verify(context.Background(), w.tokens[op.token].Reveal())
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(int(p.KeyID[0]-'0'), p.Scopes, int(p.ExpiresAt.Sub(hour(0)).Hours()), p.Replaced)
}

// A pausingStore is the store of a keyWorld. It does not record uses of keys, and pauses before and
// after [pausingStore.KeyByHash] reads the file.
type pausingStore struct {
	*engine
	world *keyWorld
}

func (pausingStore) RecordKeyUse(context.Context, []driver.KeyUse) error { return nil }

// KeyByHash does the same as [engine.KeyByHash], with pauses.
func (s pausingStore) KeyByHash(ctx context.Context, hash driver.Hash) (key driver.Key, err error) {
	if _, ok := s.keyRows.Get(hash); !ok {
		version := s.keyRows.Version()
		s.world.pause()
		row, err := s.readKeyRow(ctx, hash.Sum[:])
		s.world.pause()
		if err != nil {
			return key, err
		}
		if s.world.lateVersions {
			version = s.keyRows.Version()
		}
		s.keyRows.Fill(hash, row, version)
		return key, record.DecodeKeyRow(&key, hash.Sum[:], row)
	}
	return s.engine.KeyByHash(ctx, hash)
}

func (w *keyWorld) change(op keyOp) error {
	ctx, account, id, hash := context.Background(), "acct", fmt.Sprint(op.key), w.tokens[op.token].Hash()
	switch op.kind {
	case "create":
		key := driver.Key{
			ID: id, Account: account, Name: "key", Scopes: scopes.Of(op.scope), Hash: hash, CreatedAt: hour(0), ExpiresAt: hour(op.expires),
		}
		return w.store.CreateKey(ctx, key, driver.CreateOptions{})
	case "delete":
		return w.store.DeleteKey(ctx, account, id, nil, audit.Entry{})
	}
	_, err := w.store.UpdateKey(ctx, account, id, func(k *driver.Key, _ *audit.Entry) error {
		if op.kind == "rotate" {
			k.Hash, k.Previous, k.PreviousExpiresAt = hash, k.Hash, hour(op.expires)
		} else {
			k.Scopes, k.ExpiresAt = scopes.Of(op.scope), hour(op.expires)
		}
		return nil
	})
	return err
}

// keyHistory runs concurrent clients, and returns their operations and outcomes.
func keyHistory(t *testing.T, seed uint64, tokens [4]apikeys.Token, prepare func(*keyWorld)) []porcupine.Operation {
	const writers, readers, changes, reads = 2, 4, 10, 20
	w := &keyWorld{tokens: tokens, random: rand.New(rand.NewPCG(seed, 0))}
	w.store = openTemp(t, w.disk.Option)
	w.store.db.NoSync = true
	w.store.keyRows = newKeyRows(4) // small, so that hashes evict each other
	w.disk.Around(w.commit)
	prepare(w)
	testbubble.Run(t, func(t *testing.T) {
		for now := range w.services {
			service, err := apikeys.New(pausingStore{w.store, w}, apikeys.Config{Now: func() time.Time { return hour(now) }})
			if err != nil {
				t.Fatal(err)
			}
			defer service.Close()
			w.services[now] = service
		}
		var clients sync.WaitGroup
		for client := range writers + readers {
			clients.Go(func() {
				if client >= writers {
					for range reads {
						w.pause()
						w.do(client, keyOp{kind: "verify", token: w.rand(4), now: 1 + w.rand(4)})
					}
					return
				}
				some := []scopes.Scope{scopes.FilesRead, scopes.FilesWrite, scopes.AccountRead}
				for range changes {
					w.pause()
					kind := []string{"create", "create", "rotate", "rotate", "change", "delete"}[w.rand(6)]
					w.do(client, keyOp{
						kind: kind, key: w.rand(2), token: w.rand(4), expires: 2 + w.rand(3), scope: some[w.rand(len(some))],
					})
				}
			})
		}
		clients.Wait()
	})
	if err := w.store.Close(); err != nil {
		t.Error(err)
	}
	return w.history
}

// TestKeysAreLinearizable checks that clients cannot notice the cache of keys: each answer about a
// key must be true at some moment between call and return, even while keys expire and clients
// create, rotate, change and delete keys, and even if commits fail. To show that the test can fail,
// it also runs with readers or a writer that break the rules of package mirror.
func TestKeysAreLinearizable(t *testing.T) {
	tokens := newTokens(t)
	for name, variant := range map[string]struct {
		prepare func(*keyWorld)
		exact   bool
		rounds  uint64 // maximum
	}{
		"exact":              {func(*keyWorld) {}, true, 25},
		"no key in memory":   {func(w *keyWorld) { w.store.keyRows = newKeyRows(0) }, true, 5},
		"old reads are kept": {func(w *keyWorld) { w.lateVersions = true }, false, 1000},
		"marks are lifted before the commit": {func(w *keyWorld) {
			w.disk.Around(func(commit func() error) error {
				w.store.keyRows.End(mirror.Applied)
				return w.commit(commit)
			})
		}, false, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range variant.rounds {
				history := keyHistory(t, seed, tokens, variant.prepare)
				result, info := porcupine.CheckOperationsVerbose(keysModel, history, 10*time.Second)
				switch {
				case result == porcupine.Unknown:
					t.Fatalf("round %d: not decided in time", seed)
				case result == porcupine.Illegal && variant.exact:
					t.Fatalf("round %d: %s", seed, explain(info, history))
				case result == porcupine.Illegal:
					t.Logf("round %d", seed)
					return
				}
			}
			if !variant.exact {
				t.Error("no stale answer was seen")
			}
		})
	}
}

// explain describes the history, and the longest part of it that the model can explain.
func explain(info porcupine.LinearizationInfo, history []porcupine.Operation) string {
	text := ""
	for _, op := range history {
		text += fmt.Sprintf("%d–%d client %d: %s\n", op.Call, op.Return, op.ClientId, keysModel.DescribeOperation(op.Input, op.Output))
	}
	return text + fmt.Sprint(info.PartialLinearizations())
}

// newTokens returns new tokens.
func newTokens(t *testing.T) (tokens [4]apikeys.Token) {
	service, err := apikeys.New(collector{make: func(driver.Key) {}}, apikeys.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range tokens {
		if _, tokens[i], err = service.Create(t.Context(), "acct", apikeys.CreateParams{Name: "key", Scopes: scopes.Of(scopes.FilesRead)}); err != nil {
			t.Fatal(err)
		}
	}
	return tokens
}
