package signing

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The errors of a [Sealer] and of sealed records. Their texts contain no part of the record.
var (
	// ErrSealed means that a record is sealed with a key that the Sealer does not have.
	ErrSealed = errors.New("signing: sealed with an unknown key; open the store with a Sealer that has this key")

	// ErrDamaged means that a record was changed, or belongs to another webhook or store.
	ErrDamaged = errors.New("signing: sealed record is corrupt, or belongs to another webhook or store")

	// ErrSealer means that the host's Sealer failed or did not return in time. It wraps the Sealer's
	// error.
	ErrSealer = errors.New("signing: Sealer failed")
)

// SealerTimeout is how long a store waits for one call of a [Sealer].
const SealerTimeout = 30 * time.Second

// A Sealer encrypts the data key of a store with a key that is not in the store, such as a key of
// a key management service (KMS). A [Keyring] is a Sealer of keys in memory.
//
// A store creates a random data key once and seals signing secrets with it. It keeps the data key
// only in the form that the Sealer returns. It calls the Sealer when it is opened, outside
// transactions, and never afterwards: an outage of a KMS prevents a start, but delays no
// delivery. A call that takes longer than [SealerTimeout] fails with [ErrSealer], even if it
// ignores its context.
//
// Nodes that share a database may call their Sealers at the same time. The Sealer of each node
// must open the data keys that the Sealers of the others have sealed.
type Sealer interface {
	// Seal returns plain, of [KeySize] bytes, in encrypted form, at most 64 KiB. Open must be able
	// to decrypt the result as long as a store or backup contains it. Seal must not keep or modify
	// plain.
	Seal(ctx context.Context, plain []byte) (sealed []byte, err error)

	// Open returns the plain bytes of a result of Seal. It returns an error that wraps ErrSealed if
	// it does not have the key, and ErrDamaged if sealed was changed. Errors must not contain plain
	// bytes. Open must not keep or modify sealed.
	//
	// stale means that Seal would now use another key. The store then seals the data key again, so
	// that the old key can be removed once every store has been opened. A KMS that rotates a key
	// itself, under the same ID, need not set stale.
	Open(ctx context.Context, sealed []byte) (plain []byte, stale bool, err error)
}

// call calls function, a method of a Sealer. It returns when the method returns, or after
// SealerTimeout.
func call[T any](ctx context.Context, do string, function func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, SealerTimeout)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := function(ctx)
		done <- result{value, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		r.err = ctx.Err()
	}
	if r.err != nil && !errors.Is(r.err, ErrSealed) && !errors.Is(r.err, ErrDamaged) {
		r.err = fmt.Errorf("%w to %s the data key: %w", ErrSealer, do, r.err)
	}
	return r.value, r.err
}
