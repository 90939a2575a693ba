// Package id makes and checks the identifiers of the library's resources: a
// prefix that names the kind, and a ULID.
package id

import (
	"bufio"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// The prefixes in use.
const (
	Key      = "key_"
	Webhook  = "wh_"
	Event    = "evt_"
	Recovery = "rec_"
)

// A Generator makes identifiers that sort in the order they were made, also
// within a millisecond and when the clock is set back. The zero Generator is
// ready; it is safe for concurrent use.
type Generator struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
	last    uint64
}

// New returns prefix followed by a new ULID of the given time.
func (g *Generator) New(prefix string, at time.Time) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.entropy == nil {
		g.entropy = ulid.Monotonic(bufio.NewReader(rand.Reader), 0)
	}
	g.last = max(g.last, uint64(max(at.UnixMilli(), 0))) // a ULID begins in 1970
	u, err := ulid.New(g.last, g.entropy)
	if err != nil { // 2⁴⁸ in one millisecond: go on in the next
		g.last++
		u = ulid.MustNew(g.last, g.entropy)
	}
	text := append(make([]byte, 0, 64), prefix...)
	text = text[:len(prefix)+ulid.EncodedSize]
	_ = u.MarshalTextTo(text[len(prefix):]) // fails only for want of room
	return string(text)
}

// Valid reports whether s is prefix followed by a ULID as New writes it.
func Valid(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return false
	}
	u, err := ulid.ParseStrict(rest)
	return err == nil && u.String() == rest
}
