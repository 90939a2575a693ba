package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// A usage holds the resources used by the processes. Fields are zero if the system has no figures.
type usage struct {
	sender, receiver time.Duration // processor time
	written          int           // bytes written to files by the sender
}

func (h *host) usage() usage {
	return usage{processorTime(), h.ledger.receiverTime(), bytesWritten()}
}

func (u usage) since(before usage) usage {
	return usage{u.sender - before.sender, u.receiver - before.receiver, u.written - before.written}
}

// each formats the usage divided by n.
func (u usage) each(n int) string {
	n = max(n, 1)
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(n) }
	return fmt.Sprintf("%d bytes written, processor time %.1f µs of the sender, %.1f µs of the receiver",
		u.written/n, micros(u.sender), micros(u.receiver))
}

// bytesWritten returns the number of bytes that this process has written to storage. It works only
// on Linux.
func bytesWritten() int {
	text, _ := os.ReadFile("/proc/self/io")
	_, rest, _ := bytes.Cut(text, []byte("\nwrite_bytes: "))
	digits, _, _ := bytes.Cut(rest, []byte("\n"))
	n, _ := strconv.Atoi(string(digits))
	return n
}

// pause waits for a duration, or until ctx ends.
func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
