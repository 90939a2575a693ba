package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/postgres/internal/shards"
)

var (
	addNode       = query("add_node")
	renewNode     = query("renew_node")
	removeNode    = query("remove_node")
	viewNodes     = query("view_nodes")
	takeShards    = query("take_shards")
	releaseShards = query("release_shards")
)

// ownersChanged is the notification that a node has joined or has released shards.
const ownersChanged = "owners"

// proof is the number of bytes that a node sends and receives before it registers. It is more than
// a packet holds.
const proof = 16 << 10

// nodeStore adapts a Store to shards.Database and shards.Host.
type nodeStore struct{ *Store }

// step runs statements with a timeout of a third of Lasts.
func (s nodeStore) step(ctx context.Context, step func(context.Context, *pgxpool.Conn) error) error {
	limit := s.node.Lasts / 3
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := s.pool.Acquire(short)
	if err == nil {
		for try := 1; ; try++ {
			if err = step(short, conn); !again(err, try) || short.Err() != nil {
				break
			}
		}
		conn.Release()
	}
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("postgres: no answer within %v", limit)
	}
	return failure(ctx, err)
}

// Prove implements [shards.Database].
func (s nodeStore) Prove(ctx context.Context) error {
	return s.step(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var back []byte
		return conn.QueryRow(ctx, `select $1::bytea`, make([]byte, proof)).Scan(&back)
	})
}

// View implements [shards.Database].
func (s nodeStore) View(ctx context.Context, beat shards.Beat, h shards.Heartbeat) (v shards.View, err error) {
	err = s.step(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		// A crash of the server may lose this heartbeat. The node then notices that the server
		// restarted.
		batch := s.batch(lookUp, lockSoon, deferred)
		write := func(sql string) {
			batch.Queue(s.sql(sql), h.Term, h.Lasts, h.Read, h.Busy).Exec(func(tag pgconn.CommandTag) error {
				if tag.RowsAffected() == 0 {
					return shards.ErrNoTerm
				}
				return nil
			})
		}
		switch beat {
		case shards.Register:
			write(addNode)
		case shards.Renew:
			write(renewNode)
		}
		batch.Queue(serverStart).QueryRow(func(row pgx.Row) error { return row.Scan(&v.Began) })
		batch.Queue(s.sql(viewNodes)).QueryRow(func(row pgx.Row) error {
			return row.Scan(&v.Nodes, &v.Beats, &v.Expired, &v.Busy, &v.Owners)
		})
		err := conn.SendBatch(ctx, batch).Close()
		if err == nil && beat == shards.Register {
			s.notifyOwners(ctx, conn)
		}
		return err
	})
	return v, err
}

// Take implements [shards.Database].
func (s nodeStore) Take(ctx context.Context, term int64, list []int16, gone []int64) ([]int16, error) {
	return s.change(ctx, takeShards, term, list, gone)
}

// Release implements [shards.Database].
func (s nodeStore) Release(ctx context.Context, term int64, list []int16) error {
	_, err := s.change(ctx, releaseShards, term, list)
	return err
}

// Remove implements [shards.Database].
func (s nodeStore) Remove(ctx context.Context, term int64, beat *int64) error {
	_, err := s.change(ctx, removeNode, term, beat)
	return err
}

// change waits for settlements of this Store, and then runs a statement that changes owners. It
// returns the changed shards, and notifies other nodes, which may have shards to take.
func (s nodeStore) change(ctx context.Context, sql string, args ...any) (list []int16, err error) {
	err = s.step(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		s.settling.Lock()
		list, err = rowsOf(ctx, s.with(conn, lookUp, lockSoon), scan[int16], s.sql(sql), args...)
		s.settling.Unlock()
		if len(list) > 0 {
			s.notifyOwners(ctx, conn)
		}
		return err
	})
	return list, err
}

// notifyOwners notifies other nodes that they may have shards to take or to release.
func (s nodeStore) notifyOwners(ctx context.Context, conn *pgxpool.Conn) {
	if !s.options.quiet {
		_, _ = conn.Exec(ctx, notifies, s.channel(), ownersChanged)
	}
}

// Trim implements [shards.Database].
func (s nodeStore) Trim(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, s.node.Lasts/3)
	defer cancel()
	return s.trimChanges(short)
}

// IsBusy implements [shards.Host].
func (s nodeStore) IsBusy() bool { return s.owned.reader.polls.IsBusy() }

// BeatEnded implements [shards.Host].
func (s nodeStore) BeatEnded(err error) { s.owned.setTrouble(troubleBeat, err) }

// ShareEnded implements [shards.Host].
func (s nodeStore) ShareEnded(err error) { s.owned.shared(err) }

// Unanswered implements [shards.Host].
func (s nodeStore) Unanswered(since time.Time) { s.waited(since) }

// worked reports to the node whether the database answered a piece of work. An error from the
// server counts as an answer: the connection works, and another node would get the same error. A
// read of the change feed that the server canceled does not count: after joining again, the node
// need not read the earlier changes.
func (s *Store) worked(kind shards.Work, began time.Time, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, store.ErrClosed) {
		return
	}
	c := code(err)
	s.node.Worked(kind, began, err == nil || c != "" && (kind != shards.WorkFeed || c != queryCanceled))
}
