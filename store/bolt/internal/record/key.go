package record

import (
	"encoding/binary"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
)

// EncodeAlias returns what stands where a key's record would, under a previous hash: the
// current one. Its first byte is no record's version.
func EncodeAlias(current apikeys.Hash) []byte { return append([]byte{0}, current.Sum[:]...) }

// DecodeAlias returns the current hash, if the record is an alias.
func DecodeAlias(record []byte) (current []byte, ok bool) {
	if len(record) == 0 || record[0] != 0 {
		return nil, false
	}
	return record[1:], true
}

// A key record is read on every request, so it is laid out to be read fast: a
// head of fixed size, the previous hash if there is one, and the strings
// together at the end, for one allocation. It does not repeat the hash it stands
// under.
const (
	keyVersion  = 0
	keyScopes   = 1 // four bits each, in order
	keyCreated  = keyScopes + 8
	keyExpires  = keyCreated + 8
	keyGrace    = keyExpires + 8 // when the previous hash expires
	keyID       = keyGrace + 8   // lengths
	keyAccount  = keyID + 2
	keyPrevious = keyAccount + 2 // 0 or 1 hashes
	keyHead     = keyPrevious + 1
)

// EncodeKey returns the record of a key.
func EncodeKey(key *apikeys.Key) []byte {
	record := make([]byte, keyHead, keyHead+len(key.Previous.Sum)+len(key.ID)+len(key.Account)+len(key.Name))
	record[keyVersion] = Version
	shift := 0
	var order uint64
	for scope := range key.Scopes.All() {
		order |= uint64(scope) << shift
		shift += 4
	}
	binary.LittleEndian.PutUint64(record[keyScopes:], order)
	binary.LittleEndian.PutUint64(record[keyCreated:], fixedTime(key.CreatedAt))
	binary.LittleEndian.PutUint64(record[keyExpires:], fixedTime(key.ExpiresAt))
	binary.LittleEndian.PutUint64(record[keyGrace:], fixedTime(key.PreviousExpiresAt))
	binary.LittleEndian.PutUint16(record[keyID:], uint16(len(key.ID)))
	binary.LittleEndian.PutUint16(record[keyAccount:], uint16(len(key.Account)))
	if !key.Previous.IsZero() {
		record[keyPrevious] = 1
		record = append(record, key.Previous.Sum[:]...)
	}
	record = append(record, key.ID...)
	record = append(record, key.Account...)
	return append(record, key.Name...)
}

// DecodeKey decodes the key under that hash.
func DecodeKey(key *apikeys.Key, hash, record []byte) error {
	if len(record) < keyHead || record[keyVersion] != Version {
		return ErrCorrupt
	}
	copy(key.Hash.Sum[:], hash)
	for order := binary.LittleEndian.Uint64(record[keyScopes:]); order != 0; order >>= 4 {
		key.Scopes = key.Scopes.With(scopes.Scope(order & 15))
	}
	key.CreatedAt = timeOf(binary.LittleEndian.Uint64(record[keyCreated:]))
	key.ExpiresAt = timeOf(binary.LittleEndian.Uint64(record[keyExpires:]))
	key.PreviousExpiresAt = timeOf(binary.LittleEndian.Uint64(record[keyGrace:]))
	id := int(binary.LittleEndian.Uint16(record[keyID:]))
	account := int(binary.LittleEndian.Uint16(record[keyAccount:]))
	rest := record[keyHead:]
	if record[keyPrevious] == 1 && len(rest) >= len(key.Previous.Sum) {
		rest = rest[copy(key.Previous.Sum[:], rest):]
	}
	if id+account > len(rest) {
		return ErrCorrupt
	}
	text := string(rest)
	key.ID, key.Account, key.Name = text[:id], text[id:id+account], text[id+account:]
	return nil
}
