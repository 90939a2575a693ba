package shards

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/store/postgres/internal/pause"
)

// The states of a shard in a term. Served and paused shards are in memory.
const (
	absent = iota
	served
	paused // nothing is claimed in the shard, and it will be released
)

// A term is the period from a node's registration until its row is gone.
type term struct {
	*Node
	id   int64
	made time.Time

	// These are guarded by Node.mu.
	over      bool
	confirmed time.Time // when its last answered heartbeat was sent
	again     bool      // a view was read while the term computed its share

	// read is the oldest transaction whose changes the term may not have read, set by the feed
	// reader. The next heartbeat stores it.
	read atomic.Int64

	sharing sync.Mutex // held while computing the share; guards shards and seen
	shards  [Count]uint8
	seen    map[int64]beat // heartbeats of other terms
}

// A beat is the latest heartbeat of another term, the time at which it was first seen, and whether
// an earlier heartbeat was seen.
type beat struct {
	count int64
	at    time.Time
	later bool
}

// dead reports whether a term has expired. The server's clock may jump. If the clock is ahead, a
// heartbeat that has recently changed still counts. If the clock is behind, a term is dead when its
// heartbeat has not changed for the time lasts.
func (b beat) dead(expired bool, now time.Time, lasts time.Duration) bool {
	since := now.Sub(b.at)
	return since > lasts || expired && (!b.later || since > lasts/2)
}

// current reports whether the term has not expired. It also checks the wall clock, because the
// monotonic clock stops while the machine is suspended. The caller must hold the lock.
func (t *term) current() bool {
	now := time.Now()
	return !t.over && now.Sub(t.confirmed) < t.Lasts && now.Round(0).Sub(t.confirmed.Round(0)) < t.Lasts
}

// live registers the term, sends its heartbeats, and computes its share from each view. It returns
// when the term is over: because ctx has ended, the registration failed, calls to the database
// hang, the term's row is gone, or the server has restarted and may have lost its last commits.
//
// A heartbeat whose answers never arrive must not keep the shards, so a doubtful term sends only
// reads until one is answered.
func (t *term) live(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var group sync.WaitGroup
	var began time.Time // when the server started
	write, confirmed, answered := Register, time.Now(), true
	// The second pause merges bursts of notifications.
	for next := confirmed; pause.Sleep(ctx, t.beatNow, time.Until(next)); pause.Sleep(ctx, nil, t.Lasts/60) {
		// Lock before reading the view, since this node must not change owners between the read and
		// its use.
		shares := t.sharing.TryLock()
		if t.isStuck() {
			break
		}
		sent, beat := time.Now(), write
		if beat == Renew && !answered && !t.isCurrent() {
			beat = NoBeat
		}
		var v View
		var err error
		if beat == Register {
			err = t.Database.Prove(ctx)
		}
		if err == nil {
			v, err = t.view(ctx, beat, Heartbeat{t.id, t.Lasts, t.read.Load(), t.Host.IsBusy()})
		}
		if err == nil && beat == NoBeat && slices.Contains(v.Nodes, t.id) {
			answered = true
			if next = sent; shares {
				t.sharing.Unlock()
			}
			continue
		}
		answered = err == nil
		if err == nil && beat != NoBeat && (beat == Register || v.Began.Equal(began)) {
			write, began, confirmed, next = Renew, v.Began, sent, sent.Add(t.Lasts/4)
			t.confirm(sent, shares)
			if shares {
				group.Go(func() { t.share(ctx, v) })
			}
			t.Host.BeatEnded(nil)
			continue
		}
		if shares {
			t.sharing.Unlock()
		}
		if err == nil || errors.Is(err, ErrNoTerm) {
			break
		}
		if !t.isCurrent() {
			t.Host.BeatEnded(err)
		}
		if beat == Register {
			pause.Sleep(ctx, nil, t.Lasts/24)
			break
		}
		t.Host.Unanswered(confirmed)
		next = time.Now().Add(t.Lasts / 24)
	}
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	end()
	group.Wait()
	if t.ctx.Err() == nil { // otherwise Close deregisters, and running settlements continue
		t.deregister()
		t.unload(which(func(shard int16) bool { return t.shards[shard] != absent }))
	}
}

// deregister removes the term. It tries five times, since connections may just have been lost. If
// it fails, other nodes remove the term after it expires.
func (t *term) deregister() {
	ctx, cancel := context.WithTimeout(context.Background(), t.Lasts/3)
	defer cancel()
	for range 5 {
		if err := t.Database.Remove(ctx, t.id, nil); err == nil || !pause.Sleep(ctx, nil, t.Lasts/240) {
			return
		}
	}
}

func (t *term) isCurrent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current()
}

func (t *term) isStuck() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stuck()
}

// confirm records that the term was alive when a heartbeat was sent, and whether the term computes
// its share now.
func (t *term) confirm(sent time.Time, shares bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.confirmed, t.again = sent, !shares
}

// share takes or releases shards until this node has its share. If it cannot finish, the next
// heartbeat continues.
func (t *term) share(ctx context.Context, v View) {
	err := t.balance(ctx, v)
	if ctx.Err() == nil {
		t.Host.ShareEnded(err) // before the next share, and before trimming, which may take a while
	}
	if ctx.Err() == nil && err == nil && t.shards[0] == served {
		_ = t.Database.Trim(ctx) // errors are ignored: the next call trims
	}
	t.sharing.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.again {
		t.Beat()
	}
}

// balance unloads shards that the node does not own according to the view, takes or releases shards
// to reach the node's share, and loads the node's other shards.
func (t *term) balance(ctx context.Context, v View) error {
	alive := t.removeDead(ctx, v)
	rank, _ := slices.BinarySearch(alive, t.id)
	share := (Count + len(alive) - 1 - rank) / len(alive)
	t.unload(which(func(shard int16) bool { return v.Owners[shard] != t.id && t.shards[shard] != absent }))
	in := func(state uint8) []int16 {
		return which(func(shard int16) bool { return v.Owners[shard] == t.id && t.shards[shard] == state })
	}
	leave, keep := in(paused), append(in(absent), t.leastBusy(in(served))...)
	if surplus := len(keep) - share; surplus > 0 {
		leave, keep = append(leave, keep[:surplus]...), keep[surplus:]
	}
	err := t.leave(ctx, leave)
	if err == nil && len(keep) < share {
		// Nodes start at different shards according to their rank, so that they seldom try to take
		// the same shard.
		free := which(func(shard int16) bool { return !slices.Contains(alive, v.Owners[shard]) })
		at := rank * len(free) / len(alive)
		free = slices.Concat(free[at:], free[:at])
		var taken []int16
		taken, err = t.take(ctx, free[:min(share-len(keep), len(free))], v.gone())
		keep = append(keep, taken...)
	}
	return errors.Join(err, t.load(ctx, slices.DeleteFunc(keep, func(shard int16) bool { return t.shards[shard] == served })))
}

// removeDead removes expired terms, and returns the others.
func (t *term) removeDead(ctx context.Context, v View) (alive []int64) {
	now, before := time.Now(), t.seen
	t.seen = make(map[int64]beat)
	for i, other := range v.Nodes {
		b, known := before[other]
		if !known || b.count != v.Beats[i] {
			b = beat{v.Beats[i], now, known}
		}
		t.seen[other] = b
		if other == t.id || !b.dead(v.Expired[i], now, t.Lasts) {
			alive = append(alive, other)
		} else {
			_ = t.Database.Remove(ctx, other, &b.count)
		}
	}
	return alive
}

// leastBusy sorts shards by their number of attempts in flight.
func (t *term) leastBusy(list []int16) []int16 {
	busy := t.Host.UnderWay()
	slices.SortStableFunc(list, func(a, b int16) int { return cmp.Compare(busy[a], busy[b]) })
	return list
}

// leave pauses shards, and releases each once nothing is in flight there, or after leaveWait.
// Shards that it could not release stay paused until the next heartbeat.
func (t *term) leave(ctx context.Context, list []int16) error {
	t.Host.PauseShards(list)
	t.mark(list, paused)
	for until := time.Now().Add(leaveWait); len(list) > 0; pause.Sleep(ctx, nil, leavePause) {
		late, busy := time.Now().After(until), t.Host.UnderWay()
		var free, others []int16
		for _, shard := range list {
			if late || busy[shard] == 0 {
				free = append(free, shard)
			} else {
				others = append(others, shard)
			}
		}
		if err := t.release(ctx, free); err != nil {
			return err
		}
		list = others
	}
	return nil
}

// release makes shards free for others, and unloads them.
func (t *term) release(ctx context.Context, list []int16) error {
	if len(list) == 0 {
		return ctx.Err()
	}
	err := t.Database.Release(ctx, t.id, list)
	if err == nil {
		t.unload(list)
	}
	return err
}

// take makes the node the owner of shards whose owners are gone, and returns the shards it got.
func (t *term) take(ctx context.Context, list []int16, gone []int64) (taken []int16, err error) {
	if len(list) > 0 {
		taken, err = t.Database.Take(ctx, t.id, list, gone)
	}
	if err == nil && len(taken) < len(list) {
		t.Beat()
	}
	return taken, err
}

// load begins loading owned shards and serves them. If it fails, it releases them.
func (t *term) load(ctx context.Context, list []int16) error {
	if len(list) == 0 {
		return nil
	}
	err := t.Host.LoadShards(ctx, list)
	if err == nil {
		t.mark(list, served)
		return nil
	}
	t.unload(list)
	return errors.Join(err, t.release(ctx, list))
}

// unload removes shards from the host's memory.
func (t *term) unload(list []int16) {
	if len(list) > 0 {
		t.Host.UnloadShards(list)
		t.mark(list, absent)
	}
}

// mark sets the state of shards.
func (t *term) mark(list []int16, state uint8) {
	for _, shard := range list {
		t.shards[shard] = state
	}
}

// which returns the shards for which is returns true.
func which(is func(shard int16) bool) (list []int16) {
	for shard := range int16(Count) {
		if is(shard) {
			list = append(list, shard)
		}
	}
	return list
}
