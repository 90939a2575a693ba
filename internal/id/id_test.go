package id_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/id"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestNew_AnyClock_SortsInOrderOfCreation(t *testing.T) {
	tests := map[string]func(i int) time.Time{
		"within a millisecond":         func(int) time.Time { return noon },
		"as time passes":               func(i int) time.Time { return noon.Add(time.Duration(i) * time.Second) },
		"by less than a millisecond":   func(i int) time.Time { return noon.Add(time.Duration(i) * time.Microsecond) },
		"when the clock is set back":   func(i int) time.Time { return noon.Add(-time.Duration(i) * time.Hour) },
		"when it jumps back and forth": func(i int) time.Time { return noon.Add(time.Duration(i%7-3) * time.Minute) },
		"before 1970":                  func(i int) time.Time { return time.Unix(int64(i)-100, 0) },
		"with a clock that is not set": func(int) time.Time { return time.Time{} },
		"in other time zones":          func(i int) time.Time { return noon.In(time.FixedZone("", 3600*(i%24-12))) },
	}
	for name, clock := range tests {
		t.Run(name, func(t *testing.T) {
			var g id.Generator
			var made []string
			for i := range 2000 {
				made = append(made, g.New(id.Event, clock(i)))
			}
			if !slices.IsSorted(made) || len(slices.Compact(made)) != 2000 {
				t.Errorf("%d distinct IDs, sorted %v; want 2000, true", len(slices.Compact(made)), slices.IsSorted(made))
			}
			for _, s := range made {
				if !id.Valid(id.Event, s) {
					t.Fatalf("Valid(%q) = false, want true", s)
				}
			}
		})
	}
}

func TestNew_SeveralGenerators_SortByTime(t *testing.T) {
	var g, h id.Generator
	early, late := g.New(id.Key, noon), h.New(id.Key, noon.Add(time.Millisecond))
	if early >= late {
		t.Errorf("ID of another generator a millisecond later = %q, want one after %q", late, early)
	}
	const timestamp = len(id.Key) + 10
	if again := h.New(id.Key, noon.Add(time.Millisecond)); again[:timestamp] != late[:timestamp] {
		t.Errorf("timestamps of %q and %q differ, want the same", again, late)
	}
}

func TestNew_Concurrent_IsUnique(t *testing.T) {
	const workers, each = 8, 2000
	var g id.Generator
	var wg sync.WaitGroup
	made := make([][]string, workers)
	for i := range made {
		wg.Go(func() {
			for range each {
				made[i] = append(made[i], g.New(id.Webhook, noon))
			}
		})
	}
	wg.Wait()
	for i, list := range made {
		if !slices.IsSorted(list) {
			t.Errorf("worker %d: IDs are not sorted", i)
		}
	}
	all := slices.Concat(made...)
	slices.Sort(all)
	if got := len(slices.Compact(all)); got != workers*each {
		t.Errorf("%d distinct IDs, want %d", got, workers*each)
	}
}

func TestValid(t *testing.T) {
	var g id.Generator
	made := g.New(id.Key, noon)
	rest := strings.TrimPrefix(made, id.Key)
	if !id.Valid(id.Key, made) || len(rest) != 26 {
		t.Fatalf("Valid(%q) = false, want true", made)
	}
	for _, s := range []string{
		"", id.Key, rest, id.Webhook + rest, "KEY_" + rest, made + "0", made[:len(made)-1], " " + made, made + " ",
		made + "\n", id.Key + made, id.Key + strings.ToLower(rest), id.Key + rest[:25] + "U", id.Key + rest[:25] + "-",
		id.Key + "8" + rest[1:], id.Key + rest[:25] + "\x00", id.Key + rest[:13] + "/" + rest[14:], id.Key + rest[:24] + "é",
	} {
		if id.Valid(id.Key, s) {
			t.Errorf("Valid(%q) = true, want false", s)
		}
	}
}

func FuzzValid(f *testing.F) {
	var g id.Generator
	f.Add(g.New(id.Key, noon))
	f.Add(id.Key)
	f.Add(id.Key + "7ZZZZZZZZZZZZZZZZZZZZZZZZZ")
	f.Fuzz(func(t *testing.T, s string) {
		if !id.Valid(id.Key, s) {
			return
		}
		rest, ok := strings.CutPrefix(s, id.Key)
		if !ok || len(rest) != 26 || strings.Trim(rest, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") != "" || rest[0] > '7' {
			t.Errorf("Valid(%q) = true, want false", s)
		}
	})
}

func BenchmarkNew(b *testing.B) {
	var g id.Generator
	b.ReportAllocs()
	for b.Loop() {
		g.New(id.Event, noon)
	}
}
