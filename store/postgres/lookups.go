package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres/internal/batch"
)

const (
	maxLookupSenders = 2  // concurrent statements that look up keys
	maxLookups       = 64 // maximum keys per statement
)

const (
	keyByHash    = `select ` + keyColumns + ` from storageapi.keys k where k.hash = $1`
	keysByHashes = `select ` + keyColumns + `, k.hash from storageapi.keys k where k.hash = any((select $1::bytea[])::bytea[])`
)

// A lookup is a call to KeyByHash that shares a statement with others.
type lookup struct {
	hash driver.Hash
	done chan struct{}

	// The result, once done is closed. A key without an ID was not found.
	key driver.Key
	err error // the statement's error
}

func (s *Store) startLookups() {
	s.lookups = batch.New(batch.Config[*lookup]{
		Senders: maxLookupSenders, Values: maxLookups, Bytes: 1, Size: func(*lookup) int { return 0 }, Send: s.lookUpAll,
	})
}

// KeyByHash implements [driver.KeyStore]. Every request calls it, to look up one row by primary
// key. A call that arrives while other lookups run shares a statement with the calls that arrive at
// the same time.
func (s *Store) KeyByHash(ctx context.Context, hash driver.Hash) (driver.Key, error) {
	if s.lookups.Enter() {
		defer s.lookups.Leave()
		return s.lookUpAlone(ctx, hash)
	}
	ctx, cancel := within(ctx, defaultTimeout)
	defer cancel()
	l := &lookup{hash: hash, done: make(chan struct{})}
	s.lookups.Add(l)
	select {
	case <-l.done:
	case <-ctx.Done():
		s.lookups.Withdraw(l)
		return driver.Key{}, failure(ctx, ctx.Err())
	}
	switch {
	case l.err != nil: // perhaps caused by another key
		return s.lookUpAlone(ctx, hash)
	case l.key.ID == "":
		return driver.Key{}, apierr.ErrNotFound
	}
	return l.key, nil
}

func (s *Store) lookUpAlone(ctx context.Context, hash driver.Hash) (driver.Key, error) {
	return only(ctx, s, scanBareKey, keyByHash, hash.Sum[:])
}

// lookUpAll looks up a batch of keys in one statement. It takes the batch only once it has a
// connection, so that more calls can join.
func (s *Store) lookUpAll(take func() []*lookup) {
	wanted := sync.OnceValue(take)
	keys := make(map[driver.Hash]driver.Key)
	err := s.read(context.Background(), func(ctx context.Context, conn *pgxpool.Conn) error {
		hashes := column(wanted(), func(l *lookup) []byte { return l.hash.Sum[:] })
		_, err := rowsOf(ctx, s.planned(conn), func(row pgx.Row) (hash hashColumn, err error) {
			key, err := scanKey(row, false, &hash)
			keys[driver.Hash(hash)] = key
			return hash, err
		}, s.sql(keysByHashes), hashes)
		return err
	})
	for _, l := range wanted() {
		l.key, l.err = keys[l.hash], err
		close(l.done)
	}
}
