package jitter_test

import (
	"math"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/jitter"
)

func TestVaryStaysWithinThePart(t *testing.T) {
	var random jitter.Source
	seeded := new(jitter.Source)
	seeded.Seed(7)
	for name, source := range map[string]*jitter.Source{"nil": nil, "zero": &random, "seeded": seeded} {
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for i := range 2000 {
			d := source.Vary(time.Hour, 0.2, "wh_1", string(rune('a'+i)))
			low, high = min(low, d), max(high, d)
		}
		if low < 48*time.Minute || high > 72*time.Minute {
			t.Errorf("%s: from %v to %v, want an hour ±20 %%", name, low, high)
		}
		if low > 51*time.Minute || high < 69*time.Minute { // 1 in 10⁹⁰
			t.Errorf("%s: from %v to %v, which is hardly jitter", name, low, high)
		}
		if d := source.Vary(time.Hour, 0, "wh_1"); d != time.Hour {
			t.Errorf("%s: %v without jitter", name, d)
		}
		if d := source.Vary(math.MaxInt64, 1, "wh_1"); d < 0 {
			t.Errorf("%s: the longest duration became %v", name, d)
		}
	}
}

// TestSeedDecides: what a seeded source says goes by the seed and the key, and not by the
// order of the questions.
func TestSeedDecides(t *testing.T) {
	ask := func(seed uint64, keys ...string) map[string]time.Duration {
		var source jitter.Source
		source.Seed(seed)
		got := make(map[string]time.Duration)
		for _, key := range keys {
			got[key] = source.Vary(time.Hour, 0.2, "wh_1", key)
		}
		return got
	}
	one, again, other := ask(1, "a", "b"), ask(1, "b", "a"), ask(2, "a", "b")
	if one["a"] != again["a"] || one["b"] != again["b"] {
		t.Errorf("the same seed gave %v, then %v", one, again)
	}
	if one["a"] == one["b"] || one["a"] == other["a"] {
		t.Errorf("other keys and seeds gave the same: %v, %v", one, other)
	}
}
