package outbound

import (
	"math"
	"runtime/debug"
)

const (
	maxIdle = 16_384

	// idleSize is what a kept connection takes, in bytes: 13 KB or more, most of it the
	// state and the buffers of TLS, and the certificates; and as much again until the next
	// garbage collection.
	idleSize = 30 << 10
)

// DefaultMaxIdle returns how many connections a process may well keep: 16,384, but no more
// than half of the descriptors that it may open, and, if it has a memory limit
// (GOMEMLIMIT), than an eighth of that holds.
func DefaultMaxIdle() int {
	return defaultMaxIdle(descriptors(), debug.SetMemoryLimit(-1))
}

func defaultMaxIdle(descriptors uint64, memory int64) int {
	return int(min(maxIdle, descriptors/2, uint64(memory)/8/idleSize))
}

// maxOpen is how many connections there may be of that many descriptors before those that
// are kept give way.
func maxOpen(descriptors uint64) int { return int(min(descriptors, math.MaxInt32) / 4 * 3) }

// unlimited is how many descriptors there are where there is no limit.
const unlimited = math.MaxUint64
