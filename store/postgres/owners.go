package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	addNode       = query("add_node")
	renewNode     = query("renew_node")
	removeNode    = query("remove_node")
	viewNodes     = query("view_nodes")
	takeShards    = query("take_shards")
	releaseShards = query("release_shards")
)

// step runs a statement, which may take a third of a node's time. If it fails, or its result is
// unknown, nothing is undone: the next look reads what is.
func (o *ownership) step(ctx context.Context, step func(context.Context, *pgxpool.Conn) error) error {
	short, cancel := context.WithTimeout(ctx, o.lasts/3)
	defer cancel()
	conn, err := o.store.pool.Acquire(short)
	if err == nil {
		for try := 1; ; try++ {
			if err = step(short, conn); !again(err, try) || short.Err() != nil {
				break
			}
		}
		conn.Release()
	}
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("postgres: no answer within %v", o.lasts/3)
	}
	return failure(ctx, err)
}

// proof is how many bytes a node sends and gets back before it registers: more than a packet has, for there
// are networks that only small packets pass. Such a node would take shards and deliver nothing.
const proof = 16 << 10

// prove returns nil once these bytes have passed both ways.
func (o *ownership) prove(ctx context.Context) error {
	return o.step(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var back []byte
		return conn.QueryRow(ctx, `select $1::bytea`, make([]byte, proof)).Scan(&back)
	})
}

// A view is what viewNodes reads, all of one moment.
type view struct {
	nodes, beats []int64
	expired      []bool
	pollers      []int64
	owners       []int64   // of each shard, 0: none; some may have been removed
	began        time.Time // the server
}

// gone returns 0, and owners that were removed and have left their names.
func (v *view) gone() []int64 {
	return slices.DeleteFunc(append(slices.Clone(v.owners), 0), func(owner int64) bool { return slices.Contains(v.nodes, owner) })
}

// look reads a view, after addNode or renewNode, if that is asked for. The error is pgx.ErrNoRows if
// there is no such node.
func (o *ownership) look(ctx context.Context, beat string, args ...any) (v view, err error) {
	asked := time.Now()
	err = o.step(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		batch := &pgx.Batch{}
		batch.Queue(deferred) // a server that forgets a heartbeat was started again
		batch.Queue(lookUpOwners)
		if beat != "" {
			batch.Queue(o.store.sql(beat), args...).Exec(func(tag pgconn.CommandTag) error {
				if tag.RowsAffected() == 0 {
					return pgx.ErrNoRows
				}
				return nil
			})
		}
		batch.Queue(serverStart).QueryRow(func(row pgx.Row) error { return row.Scan(&v.began) })
		batch.Queue(o.store.sql(viewNodes)).QueryRow(func(row pgx.Row) error { return row.Scan(&v.nodes, &v.beats, &v.expired, &v.pollers, &v.owners) })
		err := conn.SendBatch(ctx, batch).Close()
		if err == nil && beat == addNode {
			o.notify(ctx, conn)
		}
		return err
	})
	if err == nil && len(v.owners) != shards {
		err = fmt.Errorf("postgres: shard_owners has %d rows instead of %d", len(v.owners), shards)
	}
	if err != nil {
		return v, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pollers, o.nodes, o.viewed = v.pollers, len(v.nodes), asked
	for shard, owner := range v.owners {
		if !slices.Contains(v.nodes, owner) {
			owner = 0
		}
		o.owners[shard] = owner
	}
	return v, nil
}

// change runs a statement that changes owners, while nothing is being settled, and returns the shards.
// Others hear of it: they may have shards to take.
func (o *ownership) change(ctx context.Context, sql string, args ...any) (list []int16, err error) {
	err = o.step(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		o.fence.Lock()
		rows, err := told{conn, lookUpOwners}.Query(ctx, o.store.sql(sql), args...)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowTo[int16])
		}
		o.fence.Unlock()
		if len(list) > 0 {
			o.notify(ctx, conn)
		}
		return err
	})
	return list, err
}

// notify tells other nodes that they may have shards to take, or to leave.
func (o *ownership) notify(ctx context.Context, conn *pgxpool.Conn) {
	if !o.store.options.quiet {
		_, _ = conn.Exec(ctx, notifies, o.store.channel(), ownersChanged)
	}
}

// deregister removes the incarnation. It tries some times, since connections may just have been lost.
// If it fails, others remove it once its time is over.
func (n *incarnation) deregister() {
	ctx, cancel := context.WithTimeout(context.Background(), n.lasts/3)
	defer cancel()
	for range 5 {
		if _, err := n.change(ctx, removeNode, n.id, nil); err == nil || !sleep(ctx, nil, n.lasts/240) {
			return
		}
	}
}
