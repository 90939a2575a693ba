package webhooks

import (
	"context"
	"io"
	"sync"
	"time"
)

// A stop ends an attempt early, from any goroutine, and tells when it has ended. The
// zero stop is that of an attempt under way.
type stop struct {
	mu     sync.Mutex
	called bool
	held   io.Closer // what the attempt waits for
	over   bool
	ended  chan struct{} // nil: nobody asked
}

// now ends the attempt: nothing more is sent, but for what is on its way already.
func (s *stop) now() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.called = true
	if s.held != nil {
		_ = s.held.Close()
	}
}

// hold has what is given closed if the attempt is stopped, in place of what was held
// before. It reports whether the attempt goes on.
func (s *stop) hold(what io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = what
	return !s.called
}

// sleep waits until then, or until the attempt is stopped.
func (s *stop) sleep(until time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	if s.hold(closer(cancel)) {
		<-ctx.Done()
		s.hold(nil)
	}
}

// A closer is called by Close.
type closer func()

func (c closer) Close() error { c(); return nil }

func (s *stop) wasCalled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.called
}

// end tells that the attempt has ended: nothing more will be sent.
func (s *stop) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.ended != nil {
		close(s.ended)
	}
}

// isOver reports whether the attempt has ended.
func (s *stop) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// wait returns when the attempt has ended, or ctx.
func (s *stop) wait(ctx context.Context) error {
	s.mu.Lock()
	if s.ended == nil {
		s.ended = make(chan struct{})
		if s.over {
			close(s.ended)
		}
	}
	ended := s.ended
	s.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A dialing is closed by ending the context in which it is done.
type dialing context.CancelFunc

func (d dialing) Close() error {
	d()
	return nil
}
