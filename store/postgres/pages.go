package postgres

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store/postgres/internal/pause"
	"github.com/storageapi/storageapi/store/postgres/internal/shards"
)

// Pending deliveries of newly taken shards are loaded in pages. The node meanwhile delivers the
// deliveries that it has already loaded. The latest events come first: old pending deliveries are
// mostly for receivers that are down, and must not delay others. Loading relies on two facts:
//
//   - The change feed reports every delivery that becomes pending after the shard's snapshot. The
//     pages, whose snapshots are later, contain all deliveries that became pending before it.
//   - A delivery may be reported twice, or after it was settled. That is harmless: Load returns
//     whether it is still pending.
const (
	pageMax    = 4096 // rows
	pageMin    = 100  // minimum rows, reached when statements time out
	pageShards = 16   // maximum shards in a page
	pageSplit  = pageMax / pageShards

	reloadSoon = 50 * time.Millisecond // first pause between tries of a page; doubles
	reloadMax  = 15 * time.Second
)

var pendingPage = query("pending_page")

// A shardLoad is a shard that is loading.
type shardLoad struct {
	shard          int16
	event, webhook int64 // the position down to which it was read
	limit          int   // maximum rows of the next page that has it
	wait           time.Duration
	again          time.Time // earliest time of the next try
	failing        bool      // the smallest page cannot be read
}

// loads are the shards that are loading, guarded by ownedShards.mu.
type loads struct {
	of      map[int16]*shardLoad
	line    []*shardLoad // shards that wait for their next page, in turn
	runs    bool         // whether loadPages runs
	changed chan struct{}
}

// begin starts loading shards.
func (l *loads) begin(shards []int16) {
	for _, shard := range shards {
		load := &shardLoad{shard: shard, event: math.MaxInt64, webhook: math.MaxInt64, limit: pageMax}
		l.of[shard] = load
		l.line = append(l.line, load)
	}
}

// next removes the shards of the next page from the line: shards that are due and have the same
// limit. If there are none, it returns how long to wait; a negative wait means that nothing is
// loading.
func (l *loads) next(now time.Time) (page []*shardLoad, wait time.Duration) {
	l.line = slices.DeleteFunc(l.line, func(load *shardLoad) bool { return l.of[load.shard] != load })
	if len(l.line) == 0 {
		return nil, -1
	}
	wait = reloadMax
	l.line = slices.DeleteFunc(l.line, func(load *shardLoad) bool {
		if left := load.again.Sub(now); left > 0 {
			wait = min(wait, left)
			return false
		}
		if len(page) > 0 && (load.limit != page[0].limit || len(page) >= load.limit/pageSplit) {
			return false
		}
		page = append(page, load)
		return true
	})
	return page, wait
}

// loaded returns the shards that are completely loaded.
func (o *ownedShards) loaded() (shards []int16) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for shard := range o.shards {
		if o.loads.of[shard] == nil {
			shards = append(shards, shard)
		}
	}
	return shards
}

// LoadShards implements [shards.Host]. It starts loading the pending deliveries of newly taken
// shards. It first unloads the shards, in case memory has earlier state. After an error none of
// them is in memory.
func (s nodeStore) LoadShards(ctx context.Context, shards []int16) error {
	err := s.beginShards(ctx, shards)
	if err != nil {
		s.UnloadShards(shards)
	}
	return err
}

// beginShards reads the snapshot of shards and starts loading them.
func (s nodeStore) beginShards(ctx context.Context, shards []int16) error {
	if len(shards) == 0 {
		return nil
	}
	o := &s.owned
	if err := o.beginReading(ctx); err != nil {
		return err
	}
	defer o.endReading()
	s.UnloadShards(shards)
	if err := s.forgetForeign(ctx); err != nil {
		return err
	}
	probes, seen, err := s.readChanges(ctx, beginShards, shards)
	if err != nil {
		return err
	}
	o.mu.Lock()
	for _, shard := range shards {
		o.shards[shard] = seen
	}
	o.loads.begin(shards)
	o.mu.Unlock()
	o.setSnapshot(shards, seen)
	if err := s.apply(ctx, probes); err != nil {
		return err
	}
	o.want()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.loads.runs {
		pause.Wake(o.loads.changed)
	} else {
		o.loads.runs = true
		s.node.Go(s.loadPages)
	}
	return nil
}

// loadPages reads pages until all shards are loaded, or ctx ends.
func (s *Store) loadPages(ctx context.Context) {
	o := &s.owned
	for {
		o.mu.Lock()
		page, wait := o.loads.next(time.Now())
		if wait < 0 || ctx.Err() != nil {
			o.loads.runs = false
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		if len(page) == 0 {
			pause.Sleep(ctx, o.loads.changed, wait)
			continue
		}
		began := time.Now()
		rows, err := s.loadPage(ctx, page)
		s.worked(shards.WorkPage, began, err)
		if err == nil {
			s.pageLoaded(page, rows)
		} else if ctx.Err() == nil {
			s.pageFailed(page, err)
		}
	}
}

// A pageRow is a result row of pendingPage.
type pageRow struct {
	shard int16
	queuedRow
}

// loadPage reads a page of shards, reports its deliveries and returns its rows.
func (s *Store) loadPage(ctx context.Context, page []*shardLoad) (rows []pageRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.node.Lasts/3)
	defer cancel()
	type load = *shardLoad
	places := []any{
		column(page, func(l load) int16 { return l.shard }),
		column(page, func(l load) int64 { return l.event }),
		column(page, func(l load) int64 { return l.webhook }),
		page[0].limit / len(page),
	}
	rows, err = collectInOrder(ctx, s, func(row pgx.Row) (r pageRow, err error) {
		err = row.Scan(&r.shard, &r.webhook, &r.event, &r.recovered, &r.due, &r.attempts, &r.before)
		return r, err
	}, pendingPage, places...)
	if err != nil {
		return nil, err
	}
	o := &s.owned
	var unknown []int64
	wanted := make(map[int64]bool)
	for i := range rows {
		if no := rows[i].webhook; !wanted[no] && !o.known(no) {
			wanted[no] = true
			unknown = append(unknown, no)
		}
	}
	if _, err := s.learn(ctx, unknown); err != nil {
		return nil, err
	}
	o.report(column(rows, func(r pageRow) queuedRow { return r.queuedRow }))
	return rows, nil
}

// pageLoaded records that the rows of a page have been reported. The shards of a page share its
// limit equally. A shard with fewer rows than its part is completely loaded.
func (s *Store) pageLoaded(page []*shardLoad, rows []pageRow) {
	limit, read := page[0].limit/len(page), make(map[int16]int, len(page))
	for _, load := range page {
		for i := range rows {
			if r := &rows[i]; r.shard == load.shard {
				read[load.shard]++
				if r.event < load.event || r.event == load.event && r.webhook < load.webhook {
					load.event, load.webhook = r.event, r.webhook
				}
			}
		}
	}
	o := &s.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	failing := false
	for _, load := range page {
		failing = failing || load.failing
		load.limit, load.wait, load.failing = min(2*load.limit, pageMax), 0, false
		if o.loads.of[load.shard] == load && read[load.shard] < limit {
			delete(o.loads.of, load.shard)
		}
	}
	o.loads.line = append(o.loads.line, page...) // next drops loaded and released shards
	if o.loads.failing() {
		return
	}
	o.trouble(troubleLoad, nil)
	if failing {
		s.options.logger.Info("storageapi: PostgreSQL: reading pending deliveries works again")
	}
}

// failing reports whether there are shards whose smallest page cannot be read.
func (l *loads) failing() bool {
	for _, load := range l.of {
		if load.failing {
			return true
		}
	}
	return false
}

// pageFailed halves the limit of the next pages with these shards, since the statement may have
// timed out. A shard whose smallest page fails is retried with growing pauses while the other
// shards continue.
func (s *Store) pageFailed(page []*shardLoad, err error) {
	o := &s.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for _, load := range page {
		if o.loads.of[load.shard] != load {
			continue
		}
		if load.limit > pageMin {
			load.limit, load.again = max(load.limit/2, pageMin), now.Add(reloadSoon)
			continue
		}
		logged := o.loads.failing()
		load.failing, load.wait = true, min(max(2*load.wait, reloadSoon), reloadMax)
		load.again = now.Add(load.wait)
		o.trouble(troubleLoad, err)
		if !logged {
			s.options.logger.Error("storageapi: PostgreSQL: reading a shard's pending deliveries failed; other shards are not affected; "+
				"if it timed out, raise the role's statement_timeout, or vacuum the table pending",
				"schema", s.options.schema, "shard", load.shard, "rows", pageMin, "error", err)
		}
	}
	o.loads.line = append(o.loads.line, page...)
}
