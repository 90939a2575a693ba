package mirror_test

import (
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
)

// A step counts calls to MarkWritten.
type step struct{ written int }

func (s *step) MarkWritten() { s.written++ }

// get returns the value that Get returns, or "-" if there is none.
func get(m *mirror.Mirror[string, string], key string) string {
	if value, ok := m.Get(key); ok {
		return value
	}
	return "-"
}

func inStep(m *mirror.Mirror[string, string], key string) string {
	if value, ok := m.InStep(key); ok {
		return value
	}
	return "-"
}

// TestEnd runs a transaction that sets, drops and reads keys, and ends it with each outcome. It
// checks the values that readers and steps get before and after.
func TestEnd(t *testing.T) {
	keys := []string{"set", "dropped", "reread", "new", "untouched"}
	all := func(get func(*mirror.Mirror[string, string], string) string, m *mirror.Mirror[string, string]) []string {
		var values []string
		for _, key := range keys {
			values = append(values, get(m, key))
		}
		return values
	}
	for _, test := range []struct {
		outcome mirror.Ending
		want    []string
		fills   []string // after each key was offered the value "filled"
	}{
		{mirror.Applied, []string{"set 2", "-", "reread 2", "new 2", "untouched 1"}, []string{"set 2", "filled", "reread 2", "new 2", "untouched 1"}},
		{mirror.Undone, []string{"set 1", "dropped 1", "reread 1", "-", "untouched 1"}, []string{"set 1", "dropped 1", "reread 1", "filled", "untouched 1"}},
		{mirror.Unknown, []string{"-", "-", "-", "-", "untouched 1"}, []string{"-", "-", "-", "-", "untouched 1"}},
	} {
		m := mirror.New[string](mirror.Options[string]{Max: 10})
		for _, key := range keys {
			if key != "new" {
				m.Fill(key, key+" 1", m.Version())
			}
		}
		by := new(step)
		m.Set(by, "set", "set 2")
		m.Set(by, "new", "new 2")
		m.Drop(by, "dropped")
		m.Drop(by, "reread")
		m.Keep("reread", "reread 2")
		if by.written != 4 {
			t.Errorf("%d marks were noted as writes, want 4", by.written)
		}
		if diff := cmp.Diff([]string{"-", "-", "-", "-", "untouched 1"}, all(get, m)); diff != "" {
			t.Errorf("readers, before the end (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"set 2", "-", "reread 2", "new 2", "untouched 1"}, all(inStep, m)); diff != "" {
			t.Errorf("steps, before the end (-want +got):\n%s", diff)
		}
		m.End(test.outcome)
		if diff := cmp.Diff(test.want, all(get, m)); diff != "" {
			t.Errorf("after outcome %d (-want +got):\n%s", test.outcome, diff)
		}
		for _, key := range keys {
			m.Fill(key, "filled", m.Version())
		}
		if diff := cmp.Diff(test.fills, all(get, m)); diff != "" {
			t.Errorf("filled after outcome %d (-want +got):\n%s", test.outcome, diff)
		}
	}
}

// The test checks fills by a reader that began before the transaction was applied: after the mark,
// after the end, and after a later mark.
func TestFill_StraddlesCommit_IsDropped(t *testing.T) {
	m := mirror.New[string](mirror.Options[string]{Max: 10})
	begun := m.Version()
	m.Drop(new(step), "a")
	m.Fill("a", "old", begun)
	if got := get(m, "a"); got != "-" {
		t.Errorf("got %s while it is marked", got)
	}
	whileMarked := m.Version()
	m.End(mirror.Applied)
	for _, version := range []uint64{begun, whileMarked} {
		m.Fill("a", "old", version)
		if got := get(m, "a"); got != "-" {
			t.Errorf("got %s from a fill with version %d, at version %d", got, version, m.Version())
		}
	}
	m.Fill("a", "new", m.Version())
	if got := get(m, "a"); got != "new" {
		t.Errorf("got %s, want new", got)
	}
}

func TestFill_SecondUse_IsAdmitted(t *testing.T) {
	m := mirror.New[string](mirror.Options[string]{Max: 1, Second: true}) // with one tag, which keys overwrite
	var got []string
	for _, key := range []string{"a", "b", "a", "a", "b", "b"} {
		m.Fill(key, key, m.Version())
		got = append(got, get(m, "a")+get(m, "b"))
	}
	if diff := cmp.Diff([]string{"--", "--", "--", "a-", "a-", "-b"}, got); diff != "" {
		t.Errorf("held after each fill (-want +got):\n%s", diff)
	}
}

func TestFill_UsedKeys_OutliveOthers(t *testing.T) {
	m := mirror.New[int](mirror.Options[int]{Max: 100})
	for i := range 1000 {
		m.Fill(i, i, m.Version())
		for used := range 10 {
			if value, ok := m.Get(used); used <= i && (!ok || value != used) {
				t.Fatalf("after fill %d key %d is %d, %v", i, used, value, ok)
			}
		}
	}
}

func TestMirror_Weights_AreBounded(t *testing.T) {
	m := mirror.New[int](mirror.Options[int]{Max: 100, Weight: func(v int) int { return v }})
	held := func() (weight int) {
		for key := range 60 {
			if value, ok := m.Get(key); ok {
				weight += value
			}
		}
		return weight
	}
	for i := range 500 {
		m.Fill(i%60, i%50, m.Version())
		m.Set(new(step), (i+7)%60, i%40)
		m.End(mirror.Ending(i % 2))
		if weight := held(); weight > 100 {
			t.Fatalf("values of weight %d are held, want at most 100", weight)
		}
	}
	if weight := held(); weight < 50 {
		t.Errorf("values of weight %d are held, want most of 100", weight)
	}
	m.Keep(1, 101)
	if _, ok := m.Get(1); ok {
		t.Error("a value heavier than all may be is held")
	}
}

func TestClear(t *testing.T) {
	m := mirror.New[string](mirror.Options[string]{Max: 10, Shards: 4})
	begun := m.Version()
	m.Fill("a", "a", begun)
	m.Clear()
	m.Fill("b", "b", begun)
	if a, b := get(m, "a"), get(m, "b"); a != "-" || b != "-" {
		t.Errorf("got %s, %s after Clear, want none", a, b)
	}
}

// A file is a model of a file. seen holds the rows that readers see, and written holds the rows as
// the running transaction has left them. A missing row has the value 0.
type file struct{ seen, written map[int]int }

// A reading models a reader's transaction.
type reading struct {
	version uint64
	rows    map[int]int
}

// The test takes random steps of a writer and of readers with overlapping transactions. Each value
// from the mirror must be the value in the model of the file.
func TestMirror_RandomSteps_MatchesModel(t *testing.T) {
	hits := 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		m := mirror.New[int](mirror.Options[int]{Max: 1 + random.IntN(12), Shards: 1 + random.IntN(3), Second: random.IntN(2) == 0})
		f := file{make(map[int]int), make(map[int]int)}
		var readings []reading
		halted := false
		for n := range 500 {
			key := random.IntN(8)
			switch action := random.IntN(8); {
			case action == 0:
				readings = append(readings, reading{m.Version(), maps.Clone(f.seen)})
			case action <= 2 && len(readings) > 0: // a reader reads a row, and may end its transaction
				i := random.IntN(len(readings))
				m.Fill(key, readings[i].rows[key], readings[i].version)
				if random.IntN(2) == 0 {
					readings = append(readings[:i], readings[i+1:]...)
				}
			case halted && action > 4:
				f.seen, f.written = f.written, f.seen
			case action <= 4:
				if value, ok := m.Get(key); ok {
					if hits++; value != f.seen[key] {
						t.Fatalf("seed %d, action %d: key %d is %d, want %d", seed, n, key, value, f.seen[key])
					}
				}
			case action == 5:
				value, ok := m.InStep(key)
				if ok && value != f.written[key] {
					t.Fatalf("seed %d, action %d: a step sees %d for key %d, want %d", seed, n, value, key, f.written[key])
				}
				if !ok {
					m.Keep(key, f.written[key])
				}
			case action == 6:
				if random.IntN(2) == 0 {
					m.Drop(new(step), key)
				} else {
					m.Set(new(step), key, n)
				}
				f.written[key] = n
			case random.IntN(3) == 0:
				switch outcome := random.IntN(40); {
				case outcome == 0: // after a failed sync, readers may or may not see the commit
					m.End(mirror.Unknown)
					halted = true
				case outcome < 10:
					f.written = maps.Clone(f.seen)
					m.End(mirror.Undone)
				default:
					f.seen, f.written = f.written, maps.Clone(f.written)
					m.End(mirror.Applied)
				}
			}
		}
	}
	if hits < 1000 {
		t.Errorf("coverage precondition failed: %d values were compared, want 1,000", hits)
	}
}

// The test checks concurrent readers: none may get a value older than the value applied before its
// call, or a value that is not committed.
func TestMirror_ConcurrentReaders_SeeNoStaleValue(t *testing.T) {
	const keys, commits = 4, 3000
	m := mirror.New[int](mirror.Options[int64]{Max: keys, Shards: 2})
	var mu sync.RWMutex
	var rows [keys]int64        // the rows that readers of the file see
	var told [keys]atomic.Int64 // the values acknowledged to callers
	var wg sync.WaitGroup
	done := make(chan struct{})
	for reader := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(reader), 1))
			for {
				select {
				case <-done:
					return
				default:
				}
				key := random.IntN(keys)
				least := told[key].Load()
				value, ok := m.Get(key)
				if !ok {
					version := m.Version()
					mu.RLock()
					value = rows[key]
					mu.RUnlock()
					m.Fill(key, value, version)
				}
				mu.RLock()
				most := rows[key]
				mu.RUnlock()
				if value < least || value > most {
					t.Errorf("key %d is %d, want %d to %d", key, value, least, most)
					return
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 1))
	for n := range int64(commits) {
		key := random.IntN(keys)
		if n%2 == 0 {
			m.Drop(new(step), key)
		} else {
			m.Set(new(step), key, n)
		}
		if random.IntN(4) == 0 {
			m.End(mirror.Undone)
			continue
		}
		mu.Lock()
		rows[key] = n
		mu.Unlock()
		m.End(mirror.Applied)
		told[key].Store(n)
	}
	close(done)
	wg.Wait()
}
