package record

import (
	"encoding/binary"
	"time"

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
// the optional parts that the head's flags name, and all strings together, which need only one
// allocation. The record omits the hash, since it is the row's key.
//
// The packed fields of [listed.Key.Fields] follow the name.
const (
	keyVersion = 0
	keyScopes  = 1 // scopes.Set.Pack: the order
	keyCreated = keyScopes + 8
	keyID      = keyCreated + 8 // lengths
	keyAccount = keyID + 2
	keyNames   = keyAccount + 2 // scopes.Set.Pack: the names
	keyName    = keyNames + 2
	keyFlags   = keyName + 2
	keyHead    = keyFlags + 1
)

// The flags of a key record, in the order of the parts.
const (
	keyHasExpiry   = 1 << iota // 8 bytes
	keyHasPrevious             // the previous hash
	keyHasGrace                // expiry of the previous hash, 8 bytes

	keyAllFlags = 1<<iota - 1
)

// keyPartsSize returns the size of the optional parts.
func keyPartsSize(flags byte) (size int) {
	if flags&keyHasExpiry != 0 {
		size += 8
	}
	if flags&keyHasPrevious != 0 {
		size += len(driver.Hash{}.Sum)
	}
	if flags&keyHasGrace != 0 {
		size += 8
	}
	return size
}

// EncodeKey returns the record of a key. To replace a record, append its [KeyFields].
func EncodeKey(key *driver.Key) []byte {
	order, names := key.Scopes.Pack()
	record := make(encoder, keyHead, keyHead+keyPartsSize(keyAllFlags)+len(key.ID)+len(key.Account)+len(names)+len(key.Name)+packedSize)
	record[keyVersion] = Version
	binary.LittleEndian.PutUint64(record[keyScopes:], order)
	binary.LittleEndian.PutUint64(record[keyCreated:], fixedTime(key.CreatedAt))
	binary.LittleEndian.PutUint16(record[keyID:], uint16(len(key.ID)))
	binary.LittleEndian.PutUint16(record[keyAccount:], uint16(len(key.Account)))
	binary.LittleEndian.PutUint16(record[keyNames:], uint16(len(names)))
	binary.LittleEndian.PutUint16(record[keyName:], uint16(len(key.Name)))
	if !key.ExpiresAt.IsZero() {
		record[keyFlags] |= keyHasExpiry
		record = binary.LittleEndian.AppendUint64(record, fixedTime(key.ExpiresAt))
	}
	if !key.Previous.IsZero() {
		record[keyFlags] |= keyHasPrevious
		record = append(record, key.Previous.Sum[:]...)
	}
	if !key.PreviousExpiresAt.IsZero() {
		record[keyFlags] |= keyHasGrace
		record = binary.LittleEndian.AppendUint64(record, fixedTime(key.PreviousExpiresAt))
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
	id := int(binary.LittleEndian.Uint16(head[keyID:]))
	account := id + int(binary.LittleEndian.Uint16(head[keyAccount:]))
	names := account + int(binary.LittleEndian.Uint16(head[keyNames:]))
	name := names + int(binary.LittleEndian.Uint16(head[keyName:]))
	flags, text := head[keyFlags], record[keyHead:]
	if flags > keyAllFlags || keyPartsSize(flags)+name > len(text) {
		return ErrCorrupt
	}
	if flags&keyHasExpiry != 0 {
		key.ExpiresAt, text = cutTime(text)
	}
	if flags&keyHasPrevious != 0 {
		text = text[copy(key.Previous.Sum[:], text):]
	}
	if flags&keyHasGrace != 0 {
		key.PreviousExpiresAt, text = cutTime(text)
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

// cutTime cuts a time of 8 bytes off the beginning of a text.
func cutTime(text string) (t time.Time, rest string) {
	var bytes [8]byte
	return timeOf(binary.LittleEndian.Uint64(bytes[:copy(bytes[:], text)])), text[8:]
}

// KeyFields returns the fields of a key's record that this version does not know.
func KeyFields(record []byte) []byte {
	if len(record) < keyHead || record[keyVersion] != Version {
		return nil
	}
	packed := keyHead + keyPartsSize(record[keyFlags])
	for _, length := range [...]int{keyID, keyAccount, keyNames, keyName} {
		packed += int(binary.LittleEndian.Uint16(record[length:]))
	}
	return fields.Unknown(nil, string(record[min(packed, len(record)):]), new(listed.Key))
}
