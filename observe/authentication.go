package observe

import "time"

// An Authentication is the result of checking a request's API key.
type Authentication struct {
	// Outcome has few values: see [Outcomes].
	Outcome Outcome

	// Account and KeyID identify the key. They are empty if the key is not known: with the outcomes
	// Missing, Malformed, Unknown, StoreFailed and Canceled. They are not for labels.
	Account, KeyID string

	// Replaced reports that a rotation has replaced the key's value. With OK, ScopeMissing and
	// Limited the value is still in its grace period.
	Replaced bool

	// Duration is the time to verify the key, not including the handler.
	Duration time.Duration
}

// An Outcome is the reason for accepting or rejecting a key. Clients of the API cannot
// distinguish the outcomes that are answered 401.
type Outcome string

// The outcomes.
const (
	OK           Outcome = "ok"            // accepted
	Missing      Outcome = "missing"       // 401: no Api-Key header, or several
	Malformed    Outcome = "malformed"     // 401: not the form of a key, or a wrong checksum
	Unknown      Outcome = "unknown"       // 401: no such key; it may have been deleted
	Expired      Outcome = "expired"       // 401: the key has expired
	Replaced     Outcome = "replaced"      // 401: a rotation has replaced the value, and its grace period is over
	WrongNetwork Outcome = "wrong_network" // 401: the key is limited to other networks
	Disabled     Outcome = "disabled"      // 401: the key is turned off
	ScopeMissing Outcome = "scope_missing" // 403: the key may not do this
	Limited      Outcome = "limited"       // 429: too many requests
	StoreFailed  Outcome = "store_failed"  // 500: the key could not be verified
	Canceled     Outcome = "canceled"      // the client disconnected before the key was verified
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{OK, Missing, Malformed, Unknown, Expired, Replaced, Disabled, WrongNetwork, ScopeMissing, Limited, StoreFailed, Canceled}
}
