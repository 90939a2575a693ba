//go:build !unix

package postgres_test

import "time"

func ownCPU() time.Duration { return 0 } // not available on this system
