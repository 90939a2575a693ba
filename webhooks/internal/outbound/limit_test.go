package outbound

import (
	"math"
	"testing"
)

func TestDefaultMaxIdle(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		descriptors uint64
		memory      int64
		want        int
	}{
		{unlimited, math.MaxInt64, 16_384},
		{1 << 20, math.MaxInt64, 16_384},
		{20_000, math.MaxInt64, 10_000},
		{1024, math.MaxInt64, 512},
		{0, math.MaxInt64, 0},
		{unlimited, 4 << 30, 16_384},
		{unlimited, 512 << 20, 2184},
		{1024, 512 << 20, 512},
		{unlimited, 0, 0},
	} {
		if got := defaultMaxIdle(test.descriptors, test.memory); got != test.want {
			t.Errorf("%d descriptors, %d bytes: %d connections, want %d", test.descriptors, test.memory, got, test.want)
		}
	}
}
