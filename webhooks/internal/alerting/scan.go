package alerting

import (
	"encoding/binary"
	"time"
)

// ScanClaim is how long after one step of a scan other processes leave it alone.
const ScanClaim = time.Minute

// A Scan is how far the scan for expiring files is.
type Scan struct {
	Begun  time.Time
	Claim  time.Time // until then a process is at it
	Cursor string    // where it goes on
	Done   bool
}

// Wait returns how long it is until a process may scan: if the last scan is done, an
// interval after it began. The clock may have been set back meanwhile.
func (s *Scan) Wait(now time.Time, interval time.Duration) time.Duration {
	if s.Done {
		return min(s.Begun.Add(interval).Sub(now), interval)
	}
	return min(s.Claim.Sub(now), ScanClaim)
}

// Start returns the scan that a process makes now: the one that is under way, or a new
// one. Other processes leave it alone for a while.
func (s Scan) Start(now time.Time) Scan {
	if s.Done {
		s = Scan{Begun: now}
	}
	return s.Extend(now)
}

// Extend returns the scan with other processes kept from it for a while from now.
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

// ParseScan reads a state. None is that of a scan that was done long ago.
func ParseScan(state []byte) Scan {
	if len(state) < 18 || state[0] != scanVersion {
		return Scan{Done: true}
	}
	at := func(field []byte) time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(field))).UTC() }
	return Scan{at(state[1:]), at(state[9:]), string(state[18:]), state[17] == 1}
}
