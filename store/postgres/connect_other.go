//go:build !linux

package postgres

import "syscall"

// control does nothing; keep-alives and timeouts must suffice.
func control(string, string, syscall.RawConn) error { return nil }
