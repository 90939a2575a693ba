package signing

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The errors of a [Sealer] and of sealed records. They contain nothing of the record.
var (
	// ErrSealed means that a record is sealed with a key that was not given.
	ErrSealed = errors.New("signing: sealed with an unknown key; open the store with a Sealer that has this key")

	// ErrDamaged means that a record was changed, or belongs to another webhook or store.
	ErrDamaged = errors.New("signing: sealed record is corrupt, or belongs to another webhook or store")

	// ErrSealer means that the host's Sealer failed or did not return in time. It wraps the Sealer's
	// error.
	ErrSealer = errors.New("signing: Sealer failed")
)

// SealerTimeout is how long a store waits for a call of a [Sealer].
const SealerTimeout = 30 * time.Second

// A Sealer encrypts the data key of a store with a key that is not in the store, such as one of a
// key management service (KMS). A [Keyring] is a Sealer of keys in memory.
//
// A store creates a random data key once, seals signing secrets with it, and keeps it only as the
// Sealer has sealed it. It calls the Sealer when it is opened, outside transactions, and never
// afterwards: an outage of a KMS prevents a start, and holds up no delivery. A call that takes
// longer than [SealerTimeout] fails with [ErrSealer], even if it ignores its context.
//
// Nodes on one database may call their Sealers at the same time. Their Sealers must open what any
// of the others has sealed.
type Sealer interface {
	// Seal returns plain, of [KeySize] bytes, in encrypted form, at most 64 KiB. Open must return
	// plain for it as long as a store or backup contains it. Seal must not keep or modify plain.
	Seal(ctx context.Context, plain []byte) (sealed []byte, err error)

	// Open returns the plain bytes of a result of Seal. It returns an error that wraps ErrSealed
	// if it does not have the key, and ErrDamaged if sealed was changed. Errors must not contain
	// plain bytes. It must not keep or modify sealed.
	//
	// stale means that Seal would use another key than sealed has. The store then seals the data
	// key again, so that the old key can be removed once every store was opened. A KMS that
	// rotates a key itself, under the same ID, needs no stale.
	Open(ctx context.Context, sealed []byte) (plain []byte, stale bool, err error)
}

// call calls a function of a Sealer and returns when it does, or after SealerTimeout.
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
