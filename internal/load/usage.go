package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// A usage is what the processes have used; zero where the system does not say.
type usage struct {
	sender, receiver time.Duration // processor time
	written          int           // bytes that the sender has written to files
}

func (h *host) usage() usage {
	return usage{processorTime(), h.ledger.receiverTime(), bytesWritten()}
}

func (u usage) since(before usage) usage {
	return usage{u.sender - before.sender, u.receiver - before.receiver, u.written - before.written}
}

// each says how much that is for each of so many.
func (u usage) each(n int) string {
	n = max(n, 1)
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(n) }
	return fmt.Sprintf("%d bytes written, processor time %.1f µs of the sender, %.1f µs of the receiver",
		u.written/n, micros(u.sender), micros(u.receiver))
}

// bytesWritten returns how many bytes this process has had written to storage, on Linux.
func bytesWritten() int {
	text, _ := os.ReadFile("/proc/self/io")
	_, rest, _ := bytes.Cut(text, []byte("\nwrite_bytes: "))
	digits, _, _ := bytes.Cut(rest, []byte("\n"))
	n, _ := strconv.Atoi(string(digits))
	return n
}

// pause waits for so long or until ctx ends.
func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
