package outbound

import (
	"math"
	"runtime/debug"
)

const (
	maxIdle = 16_384

	// idleSize is the memory of an idle connection, in bytes: 13 KB or more, mostly TLS state,
	// buffers and certificates, and the same again until the next garbage collection.
	idleSize = 30 << 10
)

// DefaultMaxIdle returns the default limit on idle connections: 16,384, but at most half of the
// file descriptors that the process may open. If there is a memory limit (GOMEMLIMIT), the
// connections also fit into an eighth of it.
func DefaultMaxIdle() int {
	return defaultMaxIdle(descriptors(), debug.SetMemoryLimit(-1))
}

func defaultMaxIdle(descriptors uint64, memory int64) int {
	return int(min(maxIdle, descriptors/2, uint64(memory)/8/idleSize))
}

// maxOpen returns the number of open connections above which idle connections are closed.
func maxOpen(descriptors uint64) int { return int(min(descriptors, math.MaxInt32) / 4 * 3) }

// unlimited is the result of descriptors on a system without a limit.
const unlimited = math.MaxUint64
