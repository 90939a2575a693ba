// Package jitter varies durations, so that what failed together does not come again
// together.
//
//	wait := source.Vary(time.Minute, 0.2, webhook) // 48 to 72 s
package jitter

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// A Source is where jitter comes from. The nil and the zero Source are random. One with a
// seed varies by the seed and the key alone, so that a test sees the same waits each time,
// in whatever order its goroutines ask for them. It is safe for concurrent use after Seed.
type Source struct {
	seed   uint64
	seeded bool
}

// Seed gives the source a seed. Only tests call it, before the source is used.
func (s *Source) Seed(seed uint64) { s.seed, s.seeded = seed, true }

// Vary returns a duration that differs from d by that part of it at most: from 0, not at
// all, to 1. The key says what the duration is of.
func (s *Source) Vary(d time.Duration, part float64, key ...string) time.Duration {
	var at float64
	if s == nil || !s.seeded {
		at = rand.Float64()
	} else {
		at = s.of(key)
	}
	if other := d + time.Duration((2*at-1)*part*float64(d)); other >= 0 { // no overflow
		return other
	}
	return d
}

// of returns a number from 0 to 1 for a key.
func (s *Source) of(key []string) float64 {
	sum := fnv.New64a()
	for _, k := range key {
		_, _ = sum.Write([]byte(k))
		_, _ = sum.Write([]byte{0})
	}
	return rand.New(rand.NewPCG(s.seed, sum.Sum64())).Float64()
}
