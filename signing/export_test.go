package signing

// DataKeyOf returns a DataKey that is not random, for records made by earlier versions.
func DataKeyOf(plain []byte) *DataKey { return dataKeyOf(plain) }
