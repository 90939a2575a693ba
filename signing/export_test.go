package signing

// DataKeyOf returns the DataKey with the given bytes, which can open records made by earlier
// versions.
func DataKeyOf(plain []byte) *DataKey { return dataKeyOf(plain) }
