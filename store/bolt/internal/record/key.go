package record

import (
	"encoding/binary"

	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

// EncodeAlias returns the record stored under a previous hash. Instead of a key it contains the
// current hash. Its first byte differs from the first byte of all other records.
func EncodeAlias(current driver.Hash) []byte { return append([]byte{0}, current.Sum[:]...) }

// DecodeAlias returns the current hash, if the record is an alias.
func DecodeAlias(record []byte) (current []byte, ok bool) {
	if len(record) == 0 || record[0] != 0 {
		return nil, false
	}
	return record[1:], true
}

const aliasSize = 1 + len(driver.Hash{}.Sum)

// DecodeKeyRow decodes the row of a hash. If the row begins with an alias, the record of the
// current hash follows.
func DecodeKeyRow(key *driver.Key, hash []byte, row string) error {
	if len(row) >= aliasSize && row[0] == 0 {
		return DecodeKeyText(key, []byte(row[1:aliasSize]), row[aliasSize:])
	}
	return DecodeKeyText(key, hash, row)
}

// A key record is read on every request, so its layout must be fast to read: a head of fixed size,
// the previous hash if there is one, and all strings together, which need only one allocation. The
// record omits the hash, since it is the row's key.
//
// The packed fields of [listed.Key.Fields] follow the name.
const (
	keyVersion  = 0
	keyScopes   = 1 // scopes.Set.Pack: the order
	keyCreated  = keyScopes + 8
	keyExpires  = keyCreated + 8
	keyGrace    = keyExpires + 8 // expiry of the previous hash
	keyID       = keyGrace + 8   // lengths
	keyAccount  = keyID + 2
	keyNames    = keyAccount + 2 // scopes.Set.Pack: the names
	keyName     = keyNames + 2
	keyPrevious = keyName + 2 // number of previous hashes, 0 or 1
	keyHead     = keyPrevious + 1
)

// EncodeKey returns the record of a key. To replace a record, append its [KeyFields].
func EncodeKey(key *driver.Key) []byte {
	order, names := key.Scopes.Pack()
	record := make(encoder, keyHead, keyHead+len(key.Previous.Sum)+len(key.ID)+len(key.Account)+len(names)+len(key.Name)+packedSize)
	record[keyVersion] = Version
	binary.LittleEndian.PutUint64(record[keyScopes:], order)
	binary.LittleEndian.PutUint64(record[keyCreated:], fixedTime(key.CreatedAt))
	binary.LittleEndian.PutUint64(record[keyExpires:], fixedTime(key.ExpiresAt))
	binary.LittleEndian.PutUint64(record[keyGrace:], fixedTime(key.PreviousExpiresAt))
	binary.LittleEndian.PutUint16(record[keyID:], uint16(len(key.ID)))
	binary.LittleEndian.PutUint16(record[keyAccount:], uint16(len(key.Account)))
	binary.LittleEndian.PutUint16(record[keyNames:], uint16(len(names)))
	binary.LittleEndian.PutUint16(record[keyName:], uint16(len(key.Name)))
	if !key.Previous.IsZero() {
		record[keyPrevious] = 1
		record = append(record, key.Previous.Sum[:]...)
	}
	record = append(record, key.ID...)
	record = append(record, key.Account...)
	record = append(record, names...)
	record = append(record, key.Name...)
	return fields.Pack(record, (*listed.Key)(key))
}

// packedSize is room for the packed fields of most keys and webhooks.
const packedSize = 48

// DecodeKey decodes the key stored under hash.
func DecodeKey(key *driver.Key, hash, record []byte) error {
	return DecodeKeyText(key, hash, string(record))
}

// DecodeKeyText is like DecodeKey, but without an allocation: the key's strings share memory with
// the record.
func DecodeKeyText(key *driver.Key, hash []byte, record string) (err error) {
	var head [keyHead]byte
	if copy(head[:], record) < keyHead || head[keyVersion] != Version {
		return ErrCorrupt
	}
	copy(key.Hash.Sum[:], hash)
	key.CreatedAt = timeOf(binary.LittleEndian.Uint64(head[keyCreated:]))
	key.ExpiresAt = timeOf(binary.LittleEndian.Uint64(head[keyExpires:]))
	key.PreviousExpiresAt = timeOf(binary.LittleEndian.Uint64(head[keyGrace:]))
	id := int(binary.LittleEndian.Uint16(head[keyID:]))
	account := id + int(binary.LittleEndian.Uint16(head[keyAccount:]))
	names := account + int(binary.LittleEndian.Uint16(head[keyNames:]))
	name := names + int(binary.LittleEndian.Uint16(head[keyName:]))
	text := record[keyHead:]
	if head[keyPrevious] == 1 && len(text) >= len(key.Previous.Sum) {
		text = text[copy(key.Previous.Sum[:], text):]
	}
	if name > len(text) {
		return ErrCorrupt
	}
	if text[name:] != "" {
		packed := fields.Unpacker(text[name:])
		for packed.More() {
			(*listed.Key)(key).Fields(&packed)
		}
		if err := packed.Err(); err != nil {
			return unreadable(err)
		}
	}
	key.ID, key.Account, key.Name = text[:id], text[id:account], text[names:name]
	if key.Scopes, err = scopes.Unpack(binary.LittleEndian.Uint64(head[keyScopes:]), text[account:names]); err != nil {
		return ErrCorrupt
	}
	return nil
}

// KeyFields returns the fields of a key's record that this version does not know.
func KeyFields(record []byte) []byte {
	if len(record) < keyHead || record[keyVersion] != Version {
		return nil
	}
	packed := keyHead
	for _, length := range [...]int{keyID, keyAccount, keyNames, keyName} {
		packed += int(binary.LittleEndian.Uint16(record[length:]))
	}
	if record[keyPrevious] == 1 {
		packed += len(driver.Hash{}.Sum)
	}
	return fields.Unknown(nil, string(record[min(packed, len(record)):]), new(listed.Key))
}
