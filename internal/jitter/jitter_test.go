package jitter_test

import (
	"math"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/jitter"
)

func TestVary_AnySource_StaysWithinFraction(t *testing.T) {
	var random jitter.Source
	seeded := jitter.Seeded(7)
	for name, source := range map[string]*jitter.Source{"nil": nil, "zero": &random, "seeded": &seeded} {
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for i := range 2000 {
			d := source.Vary(time.Hour, 0.2, "wh_1", string(rune('a'+i)))
			low, high = min(low, d), max(high, d)
		}
		if low < 48*time.Minute || high > 72*time.Minute {
			t.Errorf("%s: from %v to %v, want an hour ±20 %%", name, low, high)
		}
		if low > 51*time.Minute || high < 69*time.Minute { // 1 in 10⁹⁰
			t.Errorf("%s: from %v to %v, want a range of more than 18 minutes", name, low, high)
		}
		if d := source.Vary(time.Hour, 0, "wh_1"); d != time.Hour {
			t.Errorf("%s: part 0: got %v, want 1h", name, d)
		}
		if d := source.Vary(math.MaxInt64, 1, "wh_1"); d < 0 {
			t.Errorf("%s: longest duration: got %v, want no overflow", name, d)
		}
	}
}

func TestVary_SeededSource_DependsOnSeedAndKeyOnly(t *testing.T) {
	vary := func(seed uint64, keys ...string) map[string]time.Duration {
		source := jitter.Seeded(seed)
		got := make(map[string]time.Duration)
		for _, key := range keys {
			got[key] = source.Vary(time.Hour, 0.2, "wh_1", key)
		}
		return got
	}
	one, again, other := vary(1, "a", "b"), vary(1, "b", "a"), vary(2, "a", "b")
	if one["a"] != again["a"] || one["b"] != again["b"] {
		t.Errorf("same seed: got %v, then %v", one, again)
	}
	if one["a"] == one["b"] || one["a"] == other["a"] {
		t.Errorf("got %v and %v, want other values for other keys and seeds", one, other)
	}
}
