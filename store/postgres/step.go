package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
)

// PostgreSQL error codes.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	uniqueViolation      = "23505"
	checkViolation       = "23514" // also raised for a row without a partition
	duplicateSchema      = "42P06"
	duplicateTable       = "42P07"
	undefinedSchema      = "3F000"
	lockNotAvailable     = "55P03"
	undefinedTable       = "42P01"
	queryCanceled        = "57014" // mostly by statement_timeout
	readOnlyTransaction  = "25006"

	insufficientResources = "53" // an error class; includes a full disk

	objectNotInPrerequisiteState = "55000"
)

const (
	maxTries       = 10               // maximum tries of a step that conflicts with others
	defaultTimeout = 10 * time.Second // the timeout of a step without a deadline
	minTimeout     = 5 * time.Second  // the minimum timeout of a step that changes something
)

// code returns the PostgreSQL code of an error, or "".
func code(err error) string {
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		return answer.Code
	}
	return ""
}

// errSilent is the error of a step without a deadline that got no answer and changed nothing.
var errSilent = fmt.Errorf("postgres: %w: no answer within %v", auth.ErrUnavailable, defaultTimeout)

// errUnsure is like errSilent, for a step that may have happened.
var errUnsure = fmt.Errorf("postgres: %w: no answer within %v", auth.ErrInterrupted, defaultTimeout)

// within returns ctx, with the timeout d if it has no deadline: connections can go silent without
// an error.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, errSilent)
}

// waited handles a step that began at begun and got no answer. After at least minTimeout it closes
// the idle connections, which are probably silent as well.
func (s *Store) waited(begun time.Time) {
	now := time.Now()
	last := s.reset.Load()
	if now.Sub(begun) >= minTimeout && (last == nil || now.Sub(*last) >= defaultTimeout) && s.reset.CompareAndSwap(last, &now) {
		s.pool.Reset()
	}
}

// wait waits for d, or until ctx ends, and returns the error of ctx.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// read runs a step that is read-only or idempotent. It may run the step several times.
func (s *Store) read(ctx context.Context, step func(context.Context, *pgxpool.Conn) error) error {
	return s.run(ctx, false, step)
}

// write runs a step that is one statement, batch or transaction. Cancelling ctx has no effect on a
// running step: the server's answer decides. Without an answer by the deadline, or within
// minTimeout if that is later, the error wraps auth.ErrInterrupted: the step may have happened.
func (s *Store) write(ctx context.Context, step func(context.Context, *pgxpool.Conn) error) error {
	return s.run(ctx, true, step)
}

func (s *Store) run(ctx context.Context, writes bool, step func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := within(ctx, defaultTimeout)
	defer cancel()
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.steps.RUnlock()
	begun, lasting := time.Now(), ctx
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		s.waited(begun)
		if err = failure(ctx, err); ctx.Err() == nil || errors.Is(err, errSilent) {
			err = fmt.Errorf("postgres: no connection: %w: %w", auth.ErrUnavailable, err)
		}
		return err
	}
	defer conn.Release()
	begun = time.Now()
	if writes {
		if err := ctx.Err(); err != nil {
			return failure(ctx, err)
		}
		end, _ := ctx.Deadline()
		if least := begun.Add(minTimeout); end.Before(least) {
			end = least
		}
		lasting, cancel = context.WithDeadline(context.WithoutCancel(ctx), end)
		defer cancel()
	}
	for try := 1; ; try++ {
		err := step(lasting, conn)
		conflicts := again(err, try) // then the step changed nothing
		if conflicts && ctx.Err() == nil {
			continue
		}
		silent := err != nil && lasting.Err() != nil
		if silent {
			s.waited(begun)
		}
		switch lost := err != nil && conn.Conn().IsClosed(); {
		case conflicts || !writes:
			if err = failure(ctx, err); ctx.Err() == nil && (lost || refused(err)) {
				err = fmt.Errorf("postgres: %w: %w", auth.ErrUnavailable, err)
			}
		case silent: // not the context's error, because the step may have happened
			err = fmt.Errorf("postgres: %w: no answer within %v: %v", auth.ErrInterrupted, time.Since(begun).Round(time.Millisecond), err)
		case lost:
			err = fmt.Errorf("postgres: %w: %w", auth.ErrInterrupted, err)
		case refused(err):
			err = fmt.Errorf("postgres: %w: %w", auth.ErrUnavailable, err)
		}
		return err
	}
}

// refused reports whether the server undid a statement for a temporary reason: too many conflicts,
// a server timeout, a lock timeout, missing resources such as disk space, or a server that is a
// standby.
func refused(err error) bool {
	switch c := code(err); c {
	case serializationFailure, deadlockDetected, lockNotAvailable, queryCanceled, readOnlyTransaction:
		return true
	default:
		return strings.HasPrefix(c, insufficientResources)
	}
}

// again reports whether to repeat a step that failed with err, after the given number of tries. A
// step must be repeated if it conflicted with other transactions, or if it inserted into a
// partition so new that its server process did not know the partition yet.
func again(err error, tries int) bool {
	var answer *pgconn.PgError
	if tries >= maxTries || !errors.As(err, &answer) {
		return false
	}
	switch answer.Code {
	case serializationFailure, deadlockDetected:
		return true
	default:
		return answer.Code == checkViolation && answer.ConstraintName == ""
	}
}

// collect returns the rows of one short statement.
func collect[T any](ctx context.Context, s *Store, scan func(pgx.Row) (T, error), sql string, args ...any) (list []T, err error) {
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		list, err = rowsOf(ctx, s.planned(conn), scan, s.sql(sql), args...)
		return err
	})
	return list, err
}

// collectInOrder is like collect, for a statement that reads through the index that has its order.
func collectInOrder[T any](ctx context.Context, s *Store, scan func(pgx.Row) (T, error), sql string, args ...any) (list []T, err error) {
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		list, err = rowsOf(ctx, s.with(conn, indexed, inOrder), scan, s.sql(sql), args...)
		return err
	})
	return list, err
}

// rowsOf returns the rows of a statement on db.
func rowsOf[T any](ctx context.Context, db querier, scan func(pgx.Row) (T, error), sql string, args ...any) (list []T, err error) {
	rows, err := db.Query(ctx, sql, args...)
	if err == nil {
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (T, error) { return scan(row) })
	}
	return list, err
}

// only returns the single row of a statement, or ErrNotFound.
func only[T any](ctx context.Context, s *Store, scan func(pgx.Row) (T, error), sql string, args ...any) (row T, err error) {
	list, err := collect(ctx, s, scan, sql, args...)
	if err != nil {
		return row, err
	}
	if len(list) == 0 {
		return row, apierr.ErrNotFound
	}
	return list[0], nil
}

// column returns the result of of for each element of a list.
func column[T, C any](list []T, of func(T) C) []C {
	out := make([]C, len(list))
	for i, element := range list {
		out[i] = of(element)
	}
	return out
}

// scan reads the only column of a row.
func scan[T any](row pgx.Row) (value T, err error) {
	err = row.Scan(&value)
	return value, err
}

// transact runs a step of several statements in a transaction. An error from the step rolls it
// back.
func (s *Store) transact(ctx context.Context, step func(context.Context, pgx.Tx) error) error {
	return s.write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, s.transaction(), func(tx pgx.Tx) error { return step(ctx, tx) })
	})
}

// failure returns the error of a step that changed nothing: the context's error if the context has
// ended, or errSilent if the timeout of within ended it.
func failure(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		if errors.Is(context.Cause(ctx), errSilent) {
			return errSilent
		}
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("postgres: %v", err) // from a shorter timeout of the pool, not from ctx
	}
	return err
}

// utc returns a time as every store returns it: in UTC, to the millisecond.
func utc(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// stored returns the column value of a time: null if it is zero.
func stored(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = utc(t)
	return &t
}

// An instant scans a stored time; null becomes the zero time.
type instant time.Time

// ScanTimestamptz implements [pgtype.TimestamptzScanner].
func (t *instant) ScanTimestamptz(v pgtype.Timestamptz) error {
	*t = instant{}
	if v.Valid {
		*t = instant(utc(v.Time))
	}
	return nil
}
