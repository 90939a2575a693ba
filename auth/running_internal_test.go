package auth

import (
	"testing"
	"time"
)

// BenchmarkRunning measures adding a request to the running ones and removing it.
func BenchmarkRunning(b *testing.B) {
	for name, expiresAt := range map[string]time.Time{"forever": {}, "expiring": time.Now().Add(time.Hour)} {
		b.Run(name, func(b *testing.B) {
			r := newRunning(time.Now)
			g := &guarded{Context: b.Context(), caller: caller{verified: Principal{KeyID: "key_01JZ5T3K9QWERTYASDFGHJKMNP", ExpiresAt: expiresAt}}}
			b.ReportAllocs()
			for b.Loop() {
				changes := r.changes.Load()
				if !r.enter(g, changes) {
					b.Fatal("the key has changed")
				}
				r.leave(g)
			}
		})
	}
}
