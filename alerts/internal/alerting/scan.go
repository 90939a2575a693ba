package alerting

import (
	"encoding/binary"
	"time"
)

// ScanClaim is how long a claim keeps other processes from scanning, unless it is extended.
const ScanClaim = time.Minute

// A Scan is the progress of a scan for expiring files.
type Scan struct {
	Begun  time.Time
	Claim  time.Time // end of the scanning process's claim
	Cursor string    // where to continue
	Done   bool
}

// Wait returns how long to wait before scanning. A new scan starts one interval after the start of
// the last one. An unfinished scan continues when the claim of its process ends. Because the clock
// may have been set back, Wait returns at most interval for a new scan, and at most ScanClaim for
// an unfinished one.
func (s *Scan) Wait(now time.Time, interval time.Duration) time.Duration {
	if s.Done {
		return min(s.Begun.Add(interval).Sub(now), interval)
	}
	return min(s.Claim.Sub(now), ScanClaim)
}

// Start claims the unfinished scan, or a new scan if the last one is done.
func (s Scan) Start(now time.Time) Scan {
	if s.Done {
		s = Scan{Begun: now}
	}
	return s.Extend(now)
}

// Extend returns the scan with a claim that ends ScanClaim from now.
func (s Scan) Extend(now time.Time) Scan {
	s.Claim = now.Add(ScanClaim)
	return s
}

const scanVersion = 1

// Encode returns the state of the scan.
func (s *Scan) Encode() []byte {
	state := binary.BigEndian.AppendUint64([]byte{scanVersion}, uint64(s.Begun.UnixMilli()))
	state = binary.BigEndian.AppendUint64(state, uint64(s.Claim.UnixMilli()))
	if s.Done {
		return append(state, 1)
	}
	return append(append(state, 0), s.Cursor...)
}

// ParseScan decodes a state. A missing or unreadable state counts as a scan done long ago.
func ParseScan(state []byte) Scan {
	if len(state) < 18 || state[0] != scanVersion {
		return Scan{Done: true}
	}
	at := func(field []byte) time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(field))).UTC() }
	return Scan{at(state[1:]), at(state[9:]), string(state[18:]), state[17] == 1}
}
