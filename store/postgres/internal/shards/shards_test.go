package shards_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/store/postgres/internal/shards"
)

// A database is a shards.Database in memory.
type database struct {
	mu     sync.Mutex
	began  time.Time
	until  map[int64]time.Time // by term
	beats  map[int64]int64
	owners [shards.Count]int64
}

func newDatabase() *database {
	return &database{began: time.Now(), until: make(map[int64]time.Time), beats: make(map[int64]int64)}
}

func (d *database) Prove(context.Context) error { return nil }
func (d *database) Trim(context.Context) error  { return nil }

func (d *database) View(_ context.Context, beat shards.Beat, h shards.Heartbeat) (v shards.View, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.until[h.Term]; beat == shards.Renew && !ok {
		return v, shards.ErrNoTerm
	}
	if beat != shards.NoBeat {
		d.until[h.Term] = time.Now().Add(h.Lasts)
		d.beats[h.Term]++
	}
	v.Nodes, v.Owners, v.Began = slices.Sorted(maps.Keys(d.until)), slices.Clone(d.owners[:]), d.began
	for _, term := range v.Nodes {
		v.Beats, v.Expired = append(v.Beats, d.beats[term]), append(v.Expired, d.until[term].Before(time.Now()))
	}
	return v, nil
}

func (d *database) Take(_ context.Context, term int64, list []int16, gone []int64) (taken []int16, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, shard := range list {
		if _, alive := d.until[term]; alive && slices.Contains(gone, d.owners[shard]) {
			d.owners[shard] = term
			taken = append(taken, shard)
		}
	}
	return taken, nil
}

func (d *database) Release(_ context.Context, term int64, list []int16) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, shard := range list {
		if d.owners[shard] == term {
			d.owners[shard] = 0
		}
	}
	return nil
}

func (d *database) Remove(_ context.Context, term int64, beat *int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if beat != nil && *beat != d.beats[term] {
		return nil
	}
	delete(d.until, term)
	for shard, owner := range d.owners {
		if owner == term {
			d.owners[shard] = 0
		}
	}
	return nil
}

// A host is a fake of a node's memory. While cut is set, the node cannot reach its database.
type host struct {
	*database
	mu     sync.Mutex
	cut    bool
	served map[int16]bool
	busy   map[int16]int // constant
}

var errCut = errors.New("cut off")

func (h *host) View(ctx context.Context, beat shards.Beat, b shards.Heartbeat) (shards.View, error) {
	h.mu.Lock()
	cut := h.cut
	h.mu.Unlock()
	if cut {
		return shards.View{}, errCut
	}
	return h.database.View(ctx, beat, b)
}

func (h *host) LoadShards(_ context.Context, list []int16) error { h.set(list, true); return nil }
func (h *host) UnloadShards(list []int16)                        { h.set(list, false) }
func (h *host) PauseShards([]int16)                              {}
func (h *host) IsBusy() bool                                     { return false }
func (h *host) BeatEnded(error)                                  {}
func (h *host) ShareEnded(error)                                 {}
func (h *host) Unanswered(time.Time)                             {}

func (h *host) UnderWay() map[int16]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.busy
}

func (h *host) set(list []int16, served bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, shard := range list {
		if served {
			h.served[shard] = true
		} else {
			delete(h.served, shard)
		}
	}
}

// join starts a node that stops at the end of the test.
func join(t *testing.T, d *database) (*shards.Node, *host) {
	h := &host{database: d, served: make(map[int16]bool)}
	n := shards.New(h, h)
	n.Go(n.Deliver)
	t.Cleanup(n.Close)
	return n, h
}

// owned checks that each node serves exactly the shards that it owns in the database, and that it
// owns want shards.
func owned(t *testing.T, d *database, nodes map[*shards.Node]*host, want int) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, h := range nodes {
		h.mu.Lock()
		count := 0
		for shard, owner := range d.owners {
			if is := owner == n.Current(); is != h.served[int16(shard)] {
				t.Errorf("shard %d is owned by term %d and served by %d: %v", shard, owner, n.Current(), h.served[int16(shard)])
			} else if is {
				count++
			}
		}
		h.mu.Unlock()
		if count != want {
			t.Errorf("term %d owns %d shards, want %d", n.Current(), count, want)
		}
	}
}

func TestNode_NodesJoinAndLeave_ShareEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a, ha := join(t, d)
		time.Sleep(2 * time.Second)
		owned(t, d, map[*shards.Node]*host{a: ha}, shards.Count)
		b, hb := join(t, d)
		time.Sleep(5 * time.Second)
		owned(t, d, map[*shards.Node]*host{a: ha, b: hb}, shards.Count/2)
		b.Close()
		time.Sleep(2 * time.Second)
		owned(t, d, map[*shards.Node]*host{a: ha}, shards.Count)
	})
}

func TestNode_OtherDies_TakesItsShardsAfterLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a, ha := join(t, d)
		b, _ := join(t, d)
		time.Sleep(5 * time.Second)
		b.Stop() // without Close, like a process that is killed
		b.Wait()
		time.Sleep(shards.NodeLasts - 2*time.Second)
		owned(t, d, map[*shards.Node]*host{a: ha}, shards.Count/2)
		time.Sleep(4 * time.Second)
		owned(t, d, map[*shards.Node]*host{a: ha}, shards.Count)
	})
}

func TestNode_ShardBusy_IsReleasedAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a, ha := join(t, d)
		busy := make(map[int16]int)
		for shard := range int16(shards.Count) {
			busy[shard] = 1
		}
		ha.mu.Lock()
		ha.busy = busy
		ha.mu.Unlock()
		time.Sleep(2 * time.Second)
		b, hb := join(t, d)
		time.Sleep(time.Second)
		owned(t, d, map[*shards.Node]*host{b: hb}, 0)
		time.Sleep(5 * time.Second)
		owned(t, d, map[*shards.Node]*host{a: ha, b: hb}, shards.Count/2)
	})
}

func TestNode_CutOff_OwnsNothingUntilReconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a, ha := join(t, d)
		time.Sleep(2 * time.Second)
		term := a.Current()
		cut := func(is bool) {
			ha.mu.Lock()
			defer ha.mu.Unlock()
			ha.cut = is
		}
		cut(true)
		time.Sleep(shards.NodeLasts - 2*time.Second)
		if a.Current() != term {
			t.Error("the term is over before its time")
		}
		time.Sleep(2 * time.Second)
		if got := a.Current(); got != 0 {
			t.Errorf("Current of a term whose time is over = %d, want 0", got)
		}
		cut(false)
		time.Sleep(2 * time.Second)
		if got := a.Current(); got != term { // unchanged, so no other node has removed it
			t.Errorf("Current once it is answered = %d, want %d", got, term)
		}
		cut(true)
		time.Sleep(shards.NodeLasts)
		join(t, d)
		time.Sleep(shards.NodeLasts + 2*time.Second)
		cut(false)
		time.Sleep(5 * time.Second)
		if got := a.Current(); got == term || shards.BaseOf(got) != a.Base() {
			t.Errorf("Current after its removal = %d, want another term of the node than %d", got, term)
		}
	})
}

func TestNode_WorkUnanswered_EndsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a, ha := join(t, d)
		time.Sleep(2 * time.Second)
		term := a.Current()
		began := time.Now()
		a.Worked(shards.WorkPage, began, false)
		time.Sleep(shards.NodeLasts * 5 / 3)
		synctest.Wait()
		if a.Current() != term {
			t.Error("one call without an answer has ended the term")
		}
		a.Worked(shards.WorkPage, time.Now(), false)
		time.Sleep(2 * time.Second)
		if got := a.Current(); got == term {
			t.Error("the term goes on though its work has no answers")
		}
		time.Sleep(2 * time.Second)
		owned(t, d, map[*shards.Node]*host{a: ha}, shards.Count)
	})
}
