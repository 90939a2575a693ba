package record

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/storageapi/storageapi/audit"
)

// The kinds of rows that an account has in the bucket accounts. IDs of keys ascend, so the row of a
// new key is next to the row for the account's audit entries, and usually on the same page.
const (
	kindKey     = "k"
	kindEntries = "l"
	kindTarget  = "t"
)

// keyIDPrefix is the beginning of the IDs that this library makes for API keys. A ULID follows.
const keyIDPrefix = "key_"

// AccountKey returns the key of an API key's row. If id is empty, it returns the prefix of all
// such keys of the account. An ID made by this library is stored as a zero byte and the 16 bytes of
// its ULID, because shorter keys make lower trees. Such IDs sort like their texts, and before other
// IDs.
func AccountKey(account, id string) []byte {
	key := Prefixed(account, kindKey)
	if text, ok := strings.CutPrefix(id, keyIDPrefix); ok {
		if u, ok := parseULID(text); ok {
			return append(append(key, 0), u[:]...)
		}
	}
	return append(key, id...)
}

// CutAccountKey splits a key made by AccountKey.
func CutAccountKey(key []byte) (account, id string, ok bool) {
	account, tail := CutPrefixed(key)
	id, ok = strings.CutPrefix(tail, kindKey)
	var u ulid.ULID
	if len(id) == 1+len(u) && id[0] == 0 {
		copy(u[:], id[1:])
		id = keyIDPrefix + u.String()
	}
	return account, id, ok
}

// AuditEntriesOf returns the key of the row that holds the number of the account's last audit
// entry. It sorts after the account's API keys and before its targets.
func AuditEntriesOf(account string) []byte { return Prefixed(account, kindEntries) }

// AuditEntriesOfTarget returns the key of the row that holds the number of a target's last audit
// entry. An existing API key does not have this row: its own row holds the number.
func AuditEntriesOfTarget(account string, target audit.Target) []byte {
	return Prefixed(account, kindTarget+string(target.Kind)+":"+target.ID)
}

// AuditEntriesOfTargets returns the prefix of all keys that AuditEntriesOfTarget returns for the
// account.
func AuditEntriesOfTargets(account string) []byte { return Prefixed(account, kindTarget) }

// An AccountRow is a row in the bucket accounts.
type AccountRow struct {
	Hash []byte // of an API key; empty in other rows
	Last uint64 // number of the last audit entry of the API key, account or target; 0 means none
}

// Encode returns nil for the zero row.
func (r AccountRow) Encode() []byte {
	if r.Last == 0 {
		return r.Hash
	}
	return binary.BigEndian.AppendUint64(slices.Clip(r.Hash), r.Last)
}

// hashSize is the size of a SHA-256.
const hashSize = 32

// DecodeAccountRow decodes an AccountRow, which shares memory with the value. If the row is
// damaged, its Hash belongs to no key.
func DecodeAccountRow(value []byte) AccountRow {
	switch len(value) {
	case 8:
		return AccountRow{Last: binary.BigEndian.Uint64(value)}
	case hashSize + 8:
		return AccountRow{value[:hashSize], binary.BigEndian.Uint64(value[hashSize:])}
	}
	return AccountRow{Hash: value}
}
