package batch_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/store/postgres/internal/batch"
)

// A store records the batches of a group of strings. A batch is stored only after open is closed.
type store struct {
	open chan struct{}

	mu      sync.Mutex
	batches [][]string
}

func newGroup(s *store, senders int) *batch.Group[string] {
	s.open = make(chan struct{})
	return batch.New(batch.Config[string]{
		Senders: senders, Values: 3, Bytes: 10,
		Size: func(value string) int { return len(value) },
		Send: func(take func() []string) {
			<-s.open
			values := take()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.batches = append(s.batches, values)
		},
	})
}

func TestGroup_AddedWhileOneWaits_ShareABatch(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []string
		want   [][]string
	}{
		{"few", []string{"a", "b"}, [][]string{{"a", "b"}}},
		{"more than a batch has", []string{"a", "b", "c", "d"}, [][]string{{"a", "b", "c"}, {"d"}}},
		{"more bytes than a batch has", []string{"aaaaa", "bbbbb", "c"}, [][]string{{"aaaaa", "bbbbb"}, {"c"}}},
		{"one with more bytes than a batch has", []string{"aaaaaaaaaaaaaa", "b"}, [][]string{{"aaaaaaaaaaaaaa"}, {"b"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s store
				g := newGroup(&s, 1)
				for _, value := range test.values {
					g.Add(value)
				}
				synctest.Wait()
				if sending, waiting := g.State(); sending != 1 || waiting != len(test.values) {
					t.Errorf("State = %d, %d; want 1, %d", sending, waiting, len(test.values))
				}
				close(s.open)
				synctest.Wait()
				if diff := cmp.Diff(test.want, s.batches); diff != "" {
					t.Errorf("batches (-want +got):\n%s", diff)
				}
				if sending, waiting := g.State(); sending != 0 || waiting != 0 {
					t.Errorf("State at the end = %d, %d; want 0, 0", sending, waiting)
				}
			})
		})
	}
}

func TestGroup_Withdrawn_IsInNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s store
		g := newGroup(&s, 1)
		g.Add("a")
		g.Add("b")
		if !g.Withdraw("a") {
			t.Error("Withdraw of a value that waits = false")
		}
		close(s.open)
		synctest.Wait()
		if g.Withdraw("b") {
			t.Error("Withdraw of a value that was stored = true")
		}
		if diff := cmp.Diff([][]string{{"b"}}, s.batches); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

func TestGroup_CallerSends_OthersWaitUntilItLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s store
		g := newGroup(&s, 1)
		close(s.open)
		if !g.Enter() {
			t.Fatal("Enter of the only caller = false")
		}
		if g.Enter() {
			t.Error("Enter beside another sender = true")
		}
		g.Add("a")
		synctest.Wait()
		if len(s.batches) > 0 {
			t.Errorf("%q were stored beside the only sender", s.batches)
		}
		g.Leave()
		synctest.Wait()
		if diff := cmp.Diff([][]string{{"a"}}, s.batches); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

func TestGroup_SeveralSenders_StoreAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, open := make(chan []string), make(chan struct{})
		g := batch.New(batch.Config[string]{
			Senders: 2, Values: 1, Bytes: 10,
			Size: func(value string) int { return len(value) },
			Send: func(take func() []string) {
				entered <- take()
				<-open
			},
		})
		for _, value := range []string{"a", "b", "c"} {
			g.Add(value)
		}
		got := slices.Concat(<-entered, <-entered)
		synctest.Wait()
		if sending, waiting := g.State(); sending != 2 || waiting != 1 {
			t.Errorf("State = %d, %d; want 2, 1", sending, waiting)
		}
		close(open)
		got = append(got, <-entered...)
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
	})
}
