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
// unknown, nothing is undone: the next heartbeat, or the next look, reads what is.
func (o *ownership) step(ctx context.Context, step func(context.Context, *pgxpool.Conn) error) error {
	short, cancel := context.WithTimeout(ctx, o.lasts/3)
	defer cancel()
	err := o.store.read(short, step)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("postgres: no answer within %v", o.lasts/3)
	}
	return err
}

// A view is what viewNodes reads, all of one moment.
type view struct {
	nodes, beats []int64
	expired      []bool
	owners       []int64 // of each shard, 0: none
	gone         []int64 // 0, and owners that were removed and have left their names
}

// look reads a view.
func (o *ownership) look(ctx context.Context) (v view, err error) {
	err = o.step(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return o.store.planned(conn).QueryRow(ctx, o.store.sql(viewNodes)).Scan(&v.nodes, &v.beats, &v.expired, &v.owners)
	})
	if err == nil && len(v.owners) != shards {
		err = fmt.Errorf("postgres: shard_owners has %d rows instead of %d", len(v.owners), shards)
	}
	if err != nil {
		return v, err
	}
	v.gone = []int64{0}
	for shard, owner := range v.owners {
		if _, alive := slices.BinarySearch(v.nodes, owner); owner != 0 && !alive {
			v.gone, v.owners[shard] = append(v.gone, owner), 0
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	copy(o.owners[:], v.owners)
	return v, nil
}

// live runs addNode or renewNode, and returns when the server was started. The error is
// pgx.ErrNoRows if there is no such node.
func (o *ownership) live(ctx context.Context, conn *pgxpool.Conn, sql string, args ...any) (began time.Time, err error) {
	batch := &pgx.Batch{}
	batch.Queue(deferred) // a server that forgets a heartbeat was started again
	batch.Queue(lookUpOwners)
	batch.Queue(o.store.sql(sql), args...).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() == 0 {
			return pgx.ErrNoRows
		}
		return nil
	})
	batch.Queue(serverStart).QueryRow(func(row pgx.Row) error { return row.Scan(&began) })
	return began, conn.SendBatch(ctx, batch).Close()
}

// owning returns the connection for changes of nodes and owners.
func owning(conn *pgxpool.Conn) querier { return told{conn, lookUpOwners} }

// change runs a statement that changes owners, and returns the shards.
func (o *ownership) change(ctx context.Context, conn *pgxpool.Conn, sql string, args ...any) (list []int16, err error) {
	rows, err := owning(conn).Query(ctx, o.store.sql(sql), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int16])
}

// free runs a statement that makes shards of this node free, while nothing is being settled.
func (o *ownership) free(ctx context.Context, conn *pgxpool.Conn, sql string, args ...any) error {
	o.fence.Lock()
	list, err := o.change(ctx, conn, sql, args...)
	o.fence.Unlock()
	if len(list) > 0 {
		o.notify(ctx, conn)
	}
	return err
}

// notify tells other nodes that they may have shards to take, or to leave.
func (o *ownership) notify(ctx context.Context, conn *pgxpool.Conn) {
	if !o.store.options.quiet {
		_, _ = conn.Exec(ctx, notifies, o.store.channel(), ownersChanged)
	}
}

// deregister removes this node. If it fails, others remove it once its time is over.
func (o *ownership) deregister(node int64) {
	ctx, cancel := context.WithTimeout(context.Background(), o.lasts/3)
	defer cancel()
	conn, err := o.store.pool.Acquire(ctx)
	if err != nil {
		return
	}
	defer conn.Release()
	_ = o.free(ctx, conn, removeNode, node, nil)
}
