package auth

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/storageapi/storageapi/observe"
)

const (
	logRefusalsEvery = time.Minute
	maxSources       = 256 // sources with their own line
	maxSource        = 64  // maximum length of a source in bytes
)

// A refusalLog logs the number of requests answered 401. Each minute it logs one line per source,
// and one line for all sources beyond maxSources together.
type refusalLog struct {
	log     *slog.Logger
	address func(*http.Request) string // nil means the host in RemoteAddr

	mu      sync.Mutex
	sources map[string]*refusals // the current minute's refusals, by source
	others  *refusals            // the refusals of all sources beyond maxSources
	due     *time.Timer          // fires at the end of the minute; nil means no refusals yet
}

type refusals struct {
	all   int
	of    map[observe.Outcome]int
	keyID string // the last known key ID
}

func (r *refusals) add(a observe.Authentication) {
	r.all++
	r.of[a.Outcome]++
	r.keyID = cmp.Or(a.KeyID, r.keyID)
}

func newRefusals() *refusals { return &refusals{of: make(map[observe.Outcome]int)} }

// note counts a request if it was refused because its key is missing or invalid.
func (l *refusalLog) note(r *http.Request, a observe.Authentication) {
	switch a.Outcome {
	case observe.Missing, observe.Malformed, observe.Unknown, observe.Expired, observe.Replaced, observe.Disabled, observe.WrongNetwork:
	default:
		return
	}
	source := l.source(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.due == nil {
		l.sources, l.others = make(map[string]*refusals), nil
		l.due = time.AfterFunc(logRefusalsEvery, l.flush)
	}
	counts := l.sources[source]
	switch {
	case counts != nil:
	case len(l.sources) < maxSources:
		counts = newRefusals()
		l.sources[source] = counts
	case l.others == nil:
		l.others = newRefusals()
		fallthrough
	default:
		counts = l.others
	}
	counts.add(a)
}

// source returns the source of r, or "unknown" if logging the source is not safe.
func (l *refusalLog) source(r *http.Request) (source string) {
	if l.address != nil {
		source = l.address(r)
	} else {
		source, _, _ = net.SplitHostPort(r.RemoteAddr)
	}
	if source == "" || len(source) > maxSource || strings.ContainsFunc(source, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "unknown"
	}
	return strings.Clone(source) // do not retain the request's memory
}

func (l *refusalLog) flush() {
	l.mu.Lock()
	sources, others := l.sources, l.others
	if l.due != nil {
		l.due.Stop()
	}
	l.sources, l.others, l.due = nil, nil, nil
	l.mu.Unlock()
	for _, source := range slices.Sorted(maps.Keys(sources)) {
		l.write(source, sources[source])
	}
	if others != nil {
		l.write("others", others)
	}
}

func (l *refusalLog) write(source string, counts *refusals) {
	list := []slog.Attr{slog.String("source", source), slog.Int("requests", counts.all)}
	for _, outcome := range observe.Outcomes() {
		if n := counts.of[outcome]; n > 0 {
			list = append(list, slog.Int(string(outcome), n))
		}
	}
	if counts.keyID != "" {
		list = append(list, slog.String("key", counts.keyID))
	}
	l.log.LogAttrs(context.Background(), slog.LevelWarn, "storageapi: requests without a valid API key", list...)
}
