package bolt

import (
	"bytes"
	"strings"
	"sync"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// maxAlerts bounds how many alerts are remembered, some 300 bytes each. Half of them
// may be deferred; what would be deferred beyond that is written.
const maxAlerts = 131_072

// alerts remembers what is kept of alerts, so that reports that change nothing are
// answered from memory, and has what is deferred.
type alerts struct {
	mu       sync.Mutex
	known    map[string]alert // by row
	writing  map[string]int   // by row: steps under way, which must not be overtaken
	deferred int              // how many are
	closed   bool
}

// An alert is one that is remembered.
type alert struct {
	stored   []byte // the record in the file; nil if there is none
	state    []byte // what is kept; it follows from stored unless the alert is deferred
	due      bool
	deferred bool
}

// write announces a step that writes the row, until the returned function is called.
func (s *alerts) write(row []byte) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing == nil {
		s.writing = make(map[string]int)
	}
	s.writing[string(row)]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.writing[string(row)]--; s.writing[string(row)] == 0 {
			delete(s.writing, string(row))
		}
	}
}

// latest returns what is kept, given what the file has.
func (s *alerts) latest(row []byte, file alert) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.known[string(row)]; a.deferred && bytes.Equal(a.stored, file.stored) {
		return a.state
	}
	return file.state
}

// set remembers an alert that was written.
func (s *alerts) set(row []byte, a alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(row, a)
}

// deferredRows returns the rows of those that are deferred.
func (s *alerts) deferredRows() (rows []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deferred == 0 {
		return nil
	}
	for row, a := range s.known {
		if a.deferred {
			rows = append(rows, row)
		}
	}
	return rows
}

// markDue makes a remembered alert due.
func (s *alerts) markDue(row []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, known := s.known[string(row)]; known {
		a.due = true
		s.known[string(row)] = a
	}
}

// put remembers an alert. It reports false if that is deferred and there are too many of
// those, which must not be forgotten; others are, for want of room.
func (s *alerts) put(row []byte, a alert) (done bool) {
	old, known := s.known[string(row)]
	switch {
	case a.deferred && !old.deferred && s.deferred >= maxAlerts/2:
		return false
	case a.deferred && !old.deferred:
		s.deferred++
	case !a.deferred && old.deferred:
		s.deferred--
	}
	if s.known == nil {
		s.known = make(map[string]alert)
	}
	if !known && len(s.known) >= maxAlerts {
		s.evict()
	}
	s.known[string(row)] = a
	return true
}

// evict forgets any one alert that is not deferred.
func (s *alerts) evict() {
	for row, a := range s.known {
		if !a.deferred {
			delete(s.known, row)
			return
		}
	}
}

// forget forgets all alerts.
func (s *alerts) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.deferred = nil, 0
}

// remembered returns the remembered alerts whose rows begin with a prefix, and whether anything is kept of each.
func (s *alerts) remembered(prefix []byte) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[string]bool)
	for row, a := range s.known {
		if strings.HasPrefix(row, string(prefix)) {
			found[row] = len(a.state) > 0
		}
	}
	return found
}

// forgetAccount forgets the account's alerts, also those that are deferred.
func (s *alerts) forgetAccount(account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	prefix := string(record.Prefixed(account, ""))
	for row, a := range s.known {
		if !strings.HasPrefix(row, prefix) {
			continue
		}
		if a.deferred {
			s.deferred--
		}
		delete(s.known, row)
	}
}
