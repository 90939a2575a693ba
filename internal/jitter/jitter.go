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

// A Source produces jitter. The nil and the zero Source are random. A Source is safe for concurrent
// use.
type Source struct {
	float func(key []string) float64 // returns a number from 0 to 1; nil means random
}

// Seeded returns a Source whose jitter depends only on the seed and the key, regardless of the
// order of calls.
func Seeded(seed uint64) Source {
	return Source{func(key []string) float64 {
		sum := fnv.New64a()
		for _, k := range key {
			_, _ = sum.Write([]byte(k))
			_, _ = sum.Write([]byte{0})
		}
		return rand.New(rand.NewPCG(seed, sum.Sum64())).Float64()
	}}
}

// Vary returns d varied at random by at most ±part of it: 0.2 is ±20 %. part is from 0 to 1. The
// key identifies the duration in a seeded source.
func (s *Source) Vary(d time.Duration, part float64, key ...string) time.Duration {
	var at float64
	if s == nil || s.float == nil {
		at = rand.Float64()
	} else {
		at = s.float(key)
	}
	if other := d + time.Duration((2*at-1)*part*float64(d)); other >= 0 { // no overflow
		return other
	}
	return d
}
