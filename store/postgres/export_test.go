package postgres

import "time"

// Publishing tells how many send events, and how many events wait to be sent.
func (s *Store) Publishing() (senders, waiting int) {
	s.publisher.mu.Lock()
	defer s.publisher.mu.Unlock()
	return s.publisher.senders, len(s.publisher.waiting)
}

// RenewAlways has each claim renew tables that have something deleted.
func (s *Store) RenewAlways() {
	s.renewal = renewal{bytes: 1}
}

// RenewNever has no claim look for tables to renew, however slow the machine is.
func (s *Store) RenewNever() {
	s.renewal = renewal{slow: time.Hour}
}
