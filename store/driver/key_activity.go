package driver

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
)

// A KeyActivity holds which scopes a key has used, from which networks, and which of its requests
// were refused. Stores keep it as text. Scopes take two bytes each, for at most 128 scopes.
// Networks are kept only if they and the scopes fit into 256 bytes.
type KeyActivity string

const (
	maxActivity  = 256 // bytes of scopes and networks
	maxNetworks  = 8
	networkBytes = 9 // at most, of a network
	tagBytes     = 6 // of tags and lengths
	maxRefusals  = 100
	dayBytes     = 2
	timeBytes    = 6 // Unix milliseconds
)

// An activity is an unpacked [KeyActivity]. Its numbers are big-endian, so that strings of times
// compare like the times.
type activity struct {
	scopes   string   // the day of the last use of each of the key's scopes, in alphabetical order; 0 means never
	networks []string // the day of the last use, and the network's bytes; the latest first
	reasons  []string // of refusals, without duplicates
	refusals string   // the time and the index in reasons of each refusal, oldest first
}

// Fields implements [fields.Record].
func (a *activity) Fields(w *fields.Walk) {
	fields.Text(w, "scopes", 2, 0, &a.scopes)
	fields.Texts(w, "networks", 4, 0, &a.networks)
	fields.Texts(w, "reasons", 6, 0, &a.reasons)
	fields.Text(w, "refusals", 8, 0, &a.refusals)
}

func (a *activity) pack() KeyActivity { return KeyActivity(fields.Pack(nil, a)) }

// unpack omits damaged parts.
func (a KeyActivity) unpack() (parts activity) {
	w := fields.Unpacker(string(a))
	for w.More() {
		parts.Fields(&w)
	}
	parts.networks = slices.DeleteFunc(parts.networks, func(network string) bool { return !networkOf(network).IsValid() })
	return parts
}

// Add returns the merged activity of a and b. If both have networks of the same day, latest means
// that the networks of b were used last. Adding the same activity again has no effect.
func (a KeyActivity) Add(b KeyActivity, latest bool) KeyActivity {
	switch {
	case a == "":
		return b
	case b == "", a == b:
		return a
	case latest:
		a, b = b, a
	}
	merged, before := a.unpack(), b.unpack()
	merged.mergeScopes(before.scopes)
	merged.mergeNetworks(before.networks)
	if merged.refusals+before.refusals != "" {
		merged.setRefusals(slices.Concat(merged.entries(), before.entries()))
	}
	return merged.pack()
}

func (a *activity) mergeScopes(other string) {
	days := make([]byte, max(len(a.scopes), len(other)))
	copy(days, a.scopes)
	for i := 0; i+dayBytes <= len(other); i += dayBytes {
		if later := []byte(other[i : i+dayBytes]); bytes.Compare(later, days[i:i+dayBytes]) > 0 {
			copy(days[i:], later)
		}
	}
	a.scopes = string(days)
}

func (a *activity) mergeNetworks(older []string) {
	for _, network := range older {
		i := slices.IndexFunc(a.networks, func(known string) bool { return known[dayBytes:] == network[dayBytes:] })
		if i < 0 {
			a.networks = append(a.networks, network)
		} else {
			a.networks[i] = max(a.networks[i], network)
		}
	}
	slices.SortStableFunc(a.networks, func(x, y string) int { return cmp.Compare(y[:dayBytes], x[:dayBytes]) })
	room := max(0, maxActivity-tagBytes-len(a.scopes)) / networkBytes
	a.networks = a.networks[:min(len(a.networks), maxNetworks, room)]
}

// entries returns the refusals, each as its time followed by its reason.
func (a *activity) entries() (list []string) {
	for rest := a.refusals; len(rest) > timeBytes; rest = rest[timeBytes+1:] {
		if reason := int(rest[timeBytes]); reason < len(a.reasons) {
			list = append(list, rest[:timeBytes]+a.reasons[reason])
		}
	}
	return list
}

// setRefusals sets the refusals to the latest of the entries.
func (a *activity) setRefusals(entries []string) {
	slices.Sort(entries)
	entries = slices.Compact(entries)
	a.reasons, a.refusals = nil, ""
	for _, entry := range entries[max(0, len(entries)-maxRefusals):] {
		at, reason := entry[:timeBytes], entry[timeBytes:]
		i := slices.Index(a.reasons, reason)
		if i < 0 {
			i, a.reasons = len(a.reasons), append(a.reasons, reason)
		}
		a.refusals += at + string([]byte{byte(i)})
	}
}

const secondsOfDay = 24 * 60 * 60

func appendDay(b []byte, at time.Time) []byte {
	return binary.BigEndian.AppendUint16(b, uint16(max(0, at.Unix())/secondsOfDay))
}

func dayOf(b string) Day {
	return Day{time.Unix(int64(binary.BigEndian.Uint16([]byte(b)))*secondsOfDay, 0).UTC()}
}

// A Day is a day in UTC, as the time of its beginning.
type Day struct{ time.Time }

// MarshalJSON returns a text such as "2026-11-27".
func (d Day) MarshalJSON() ([]byte, error) { return []byte(`"` + d.Format(time.DateOnly) + `"`), nil }

// NetworkOf returns the network that stands for an address: an IPv4 network of 24 bits, or an IPv6
// network of 48. It returns the zero Prefix for the zero Addr.
func NetworkOf(address netip.Addr) netip.Prefix {
	bits := 48
	if address.Is4() {
		bits = 24
	}
	network, _ := address.Prefix(bits) // the zero Addr has no networks
	return network
}

// ActivityFrom returns the activity of a use from a client address, which may be the zero Addr.
func ActivityFrom(address netip.Addr, at time.Time) KeyActivity {
	network := NetworkOf(address)
	if !network.IsValid() {
		return ""
	}
	a := activity{networks: []string{string(append(appendDay(nil, at), network.Addr().AsSlice()[:network.Bits()/8]...))}}
	return a.pack()
}

// networkOf returns the network in the text made by [ActivityFrom], or the zero Prefix.
func networkOf(text string) netip.Prefix {
	var v4 [4]byte
	var v6 [16]byte
	switch len(text) {
	case dayBytes + 3:
		copy(v4[:], text[dayBytes:])
		return netip.PrefixFrom(netip.AddrFrom4(v4), 24)
	case dayBytes + 6:
		copy(v6[:], text[dayBytes:])
		return netip.PrefixFrom(netip.AddrFrom16(v6), 48)
	}
	return netip.Prefix{}
}

// A NetworkUse is a network from which a key was used.
type NetworkUse struct {
	Network    netip.Prefix `json:"network"` // see [NetworkOf]
	LastUsedOn Day          `json:"lastUsedOn"`
}

// NetworksUsed returns up to 8 networks from which the key was used, the latest first.
func (k *Key) NetworksUsed() (list []NetworkUse) {
	for _, network := range k.Activity.unpack().networks {
		list = append(list, NetworkUse{networkOf(network), dayOf(network)})
	}
	return list
}

// LastUsedFrom returns the network of the key's last use from a known address, or the zero Prefix.
func (k *Key) LastUsedFrom() netip.Prefix {
	for _, use := range k.NetworksUsed() {
		return use.Network
	}
	return netip.Prefix{}
}

// scopeNames returns the names of all scopes that a key holds, in alphabetical order. A key's scopes
// never change, so the order identifies them.
func scopeNames(held scopes.Set) []string {
	return slices.Sorted(slices.Values(append(held.Names(), held.Unknown()...)))
}

// ActivityOf returns the activity of a request that used some of the scopes that its key holds.
func ActivityOf(held, used scopes.Set, at time.Time) KeyActivity {
	var days []byte
	for i, name := range scopeNames(held) {
		if used.Has(scopes.Scope(name)) {
			days = appendDay(append(days, make([]byte, dayBytes*i-len(days))...), at)
		}
	}
	a := activity{scopes: string(days)}
	return a.pack()
}

// A ScopeUse is a scope that a key has used.
type ScopeUse struct {
	Scope      scopes.Scope `json:"scope"`
	LastUsedOn Day          `json:"lastUsedOn"`
}

// ScopesUsed returns the key's scopes that were used, in alphabetical order.
func (k *Key) ScopesUsed() (list []ScopeUse) {
	days := k.Activity.unpack().scopes
	for _, name := range scopeNames(k.Scopes) {
		if len(days) < dayBytes {
			break
		}
		if day := dayOf(days); day.Unix() > 0 && k.Scopes.Has(scopes.Scope(name)) {
			list = append(list, ScopeUse{scopes.Scope(name), day})
		}
		days = days[dayBytes:]
	}
	return list
}

// ActivityRefused returns the activity of refused requests.
func ActivityRefused(list ...auth.RefusedRequest) KeyActivity {
	var a activity
	var entries []string
	for _, r := range list {
		var ms [8]byte
		binary.BigEndian.PutUint64(ms[:], uint64(max(0, r.At.UnixMilli())))
		network := ""
		if r.Network.IsValid() {
			network = r.Network.String()
		}
		entries = append(entries, string(ms[8-timeBytes:])+strings.Join([]string{string(r.Outcome), clipped(r.Route), clipped(r.Missing), network}, "\x00"))
	}
	a.setRefusals(entries)
	return a.pack()
}

// clipped returns at most 256 bytes of a text.
func clipped(text string) string { return strings.ToValidUTF8(text[:min(len(text), 256)], "") }

// Refusals returns the last refused requests of the key, at most 100, the latest first.
func (k *Key) Refusals() (list []auth.RefusedRequest) {
	a := k.Activity.unpack()
	for _, entry := range slices.Backward(a.entries()) {
		var ms [8]byte
		copy(ms[8-timeBytes:], entry)
		parts := append(strings.SplitN(entry[timeBytes:], "\x00", 4), "", "", "")
		network, _ := netip.ParsePrefix(parts[3])
		list = append(list, auth.RefusedRequest{
			At: time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))).UTC(), Outcome: observe.Outcome(parts[0]), Route: parts[1], Missing: parts[2], Network: network,
		})
	}
	return list
}
