// Package id creates and checks the IDs of resources: a prefix for the kind, and a ULID.
package id

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// The prefixes in use.
const (
	Key        = "key_"
	Webhook    = "wh_"
	Event      = "evt_"
	Recovery   = "rec_"
	AuditEntry = "aud_"
)

// A Generator creates IDs that sort in the order of their creation, even within a millisecond and
// after the clock was set back. The zero Generator is ready to use. It is safe for concurrent use.
type Generator struct {
	// Random is the source of the random part of the IDs. Default: crypto/rand.
	Random io.Reader

	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy // reads Random
	last    uint64
}

// New returns prefix followed by a new ULID of the given time.
func (g *Generator) New(prefix string, at time.Time) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.entropy == nil {
		g.entropy = ulid.Monotonic(bufio.NewReader(cmp.Or(g.Random, rand.Reader)), 0)
	}
	g.last = max(g.last, uint64(max(at.UnixMilli(), 0))) // ULIDs start in 1970
	u, err := ulid.New(g.last, g.entropy)
	if err != nil { // overflow within one millisecond: continue in the next
		g.last++
		u = ulid.MustNew(g.last, g.entropy)
	}
	text := append(make([]byte, 0, 64), prefix...)
	text = text[:len(prefix)+ulid.EncodedSize]
	_ = u.MarshalTextTo(text[len(prefix):]) // fails only if the buffer is too small
	return string(text)
}

// Derived returns prefix followed by the ULID of the given time and the first 80 bits of entropy,
// which must be hard to guess. Equal arguments yield equal IDs.
func Derived(prefix string, at time.Time, entropy []byte) string {
	var u ulid.ULID
	_ = u.SetTime(uint64(max(at.UnixMilli(), 0))) // before the year 10889
	_ = u.SetEntropy(entropy[:10])
	return prefix + u.String()
}

// Valid reports whether s is prefix followed by a ULID in the form that New returns.
func Valid(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return false
	}
	u, err := ulid.ParseStrict(rest)
	return err == nil && u.String() == rest
}
