package observe

import "time"

// An Authentication is what became of a request's API key.
type Authentication struct {
	// Outcome has few values: see [Outcomes].
	Outcome Outcome

	// Account and KeyID are whose key it is, as far as that is known: empty with Missing,
	// Malformed, Unknown, StoreFailed and Canceled. They are not for labels.
	Account, KeyID string

	// Replaced tells that the value is one that a rotation has replaced: of OK, ScopeMissing
	// and Limited one in its grace period.
	Replaced bool

	// Duration is how long verifying the key took, without what the handler took.
	Duration time.Duration
}

// An Outcome is why a key was let through or refused. Callers of the API are never told which of
// the 401s it was.
type Outcome string

// The outcomes.
const (
	OK           Outcome = "ok"            // let through
	Missing      Outcome = "missing"       // 401: no Api-Key header, or several
	Malformed    Outcome = "malformed"     // 401: not the form of a key, or a wrong checksum
	Unknown      Outcome = "unknown"       // 401: no such key, or it was deleted
	Expired      Outcome = "expired"       // 401: the key has expired
	Replaced     Outcome = "replaced"      // 401: a rotation has replaced the value, and its grace period is over
	ScopeMissing Outcome = "scope_missing" // 403: the key may not do this
	Limited      Outcome = "limited"       // 429: too many requests
	StoreFailed  Outcome = "store_failed"  // 500: the key could not be verified
	Canceled     Outcome = "canceled"      // the client went away before the key was verified
)

// Outcomes returns all outcomes, in the order of their declaration.
func Outcomes() []Outcome {
	return []Outcome{OK, Missing, Malformed, Unknown, Expired, Replaced, ScopeMissing, Limited, StoreFailed, Canceled}
}
