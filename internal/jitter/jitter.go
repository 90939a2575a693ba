// Package jitter varies durations, so that operations that failed together are not retried
// together.
//
//	wait := source.Vary(time.Minute, 0.2, webhook) // 48 to 72 s
package jitter

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// A Source produces jitter. The nil and the zero Source are random. The jitter of a seeded source
// depends only on the seed and the key, so that a test has the same waits in each run, regardless
// of the order of its goroutines. A Source is safe for concurrent use after Seed.
type Source struct {
	seed   uint64
	seeded bool
}

// Seed makes the source deterministic. Only tests may call it, before the source is used.
func (s *Source) Seed(seed uint64) { s.seed, s.seeded = seed, true }

// Vary returns d varied at random by at most ±part of it: 0.2 is ±20 %. part is from 0 to 1. The
// key identifies the duration in a seeded source.
func (s *Source) Vary(d time.Duration, part float64, key ...string) time.Duration {
	var at float64
	if s == nil || !s.seeded {
		at = rand.Float64()
	} else {
		at = s.float(key)
	}
	if other := d + time.Duration((2*at-1)*part*float64(d)); other >= 0 { // no overflow
		return other
	}
	return d
}

// float returns the key's number from 0 to 1.
func (s *Source) float(key []string) float64 {
	sum := fnv.New64a()
	for _, k := range key {
		_, _ = sum.Write([]byte(k))
		_, _ = sum.Write([]byte{0})
	}
	return rand.New(rand.NewPCG(s.seed, sum.Sum64())).Float64()
}
