// Package testlog collects the log output of tests.
package testlog

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// A Book collects log output of every level. Its zero value is empty. It is safe for concurrent use.
type Book struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Logger returns a logger that writes to the book.
func (b *Book) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Write implements [io.Writer].
func (b *Book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns the output.
func (b *Book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Reset drops the output.
func (b *Book) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Reset()
}

// Lines returns the lines that contain all of the given texts.
func (b *Book) Lines(texts ...string) (found []string) {
	for line := range strings.Lines(b.String()) {
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(line, text)
		}
		if !missing {
			found = append(found, line)
		}
	}
	return found
}
