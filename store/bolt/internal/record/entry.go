package record

import "github.com/storageapi/storageapi/audit"

// entry encodes the fields of an audit entry and the number that the store assigned to it.
func (c coder) entry(n *audit.Entry, given *uint64) {
	number(c, given)
	c.bool(&n.Pending)
	c.time(&n.At)
	text(c, &n.Action)
	text(c, &n.Target.Kind)
	c.id(&n.Target.ID)
	text(c, &n.Actor.Kind)
	c.id(&n.Actor.ID)
	texts(c, &n.Changed)
	text(c, &n.RequestID)
	text(c, &n.ClientAddress)
	text(c, &n.Object)
	text(c, &n.Reason)
	c.time(&n.Since)
	c.time(&n.Until)
}

// EncodeAuditEntry returns the record of an audit entry with its number. The record omits the
// Account and ID, which are fields of [AuditRecord].
func EncodeAuditEntry(n *audit.Entry, number uint64) []byte {
	e := newEncoder(160)
	coder{to: &e}.entry(n, &number)
	for i, text := range entryTexts(n) {
		if *text != "" {
			e.field(uint64(2+2*i), []byte(*text)...)
		}
	}
	return e
}

// entryTexts returns the fields of an audit entry that are usually empty, in the order of their
// tags: 2, 4, …
func entryTexts(n *audit.Entry) []*string {
	return []*string{&n.Target.Name, &n.Target.Hint, &n.Actor.Name, &n.Actor.Hint, &n.Turned}
}

// DecodeAuditEntry decodes the audit entry of the given account and ID. Its field Pending is as it
// was when the entry was stored.
func DecodeAuditEntry(account, id string, record []byte) (n audit.Entry, number uint64, err error) {
	d := newDecoder(record)
	n.Account, n.ID = account, id
	coder{from: d}.entry(&n, &number)
	texts := entryTexts(&n)
	d.fields(func(tag uint64, value []byte) bool {
		known := tag >= 2 && tag%2 == 0 && tag <= uint64(2*len(texts))
		if known {
			*texts[tag/2-1] = string(value)
		}
		return known
	})
	return n, number, d.err()
}

// An AuditRecord is an audit entry in the log, stored under its number. It links to the previous
// entries of the same account and of the same target.
type AuditRecord struct {
	StoredAt       int64  // Unix milliseconds
	Before         uint64 // number of the account's previous audit entry; 0 means none
	BeforeOfTarget uint64 // number of the target's previous audit entry; 0 means none
	Account, ID    string
	EarlierID      string // greatest ID of the target's earlier entries; empty if ID is greater
	AuditEntry     []byte // result of EncodeAuditEntry
}

// GreatestID returns the greatest ID of this entry and of all earlier entries of the target.
func (n *AuditRecord) GreatestID() string { return max(n.EarlierID, n.ID) }

func (n *AuditRecord) Encode() []byte {
	e := newEncoder(40 + len(n.Account) + len(n.ID) + len(n.AuditEntry))
	e.int(n.StoredAt)
	e.uint(n.Before)
	e.uint(n.BeforeOfTarget)
	e.string(n.Account)
	e.id(n.ID)
	e.id(n.EarlierID)
	e.raw(n.AuditEntry)
	return e
}

// Previous returns the number of the previous audit entry, of the same target or of the same
// account.
func (n *AuditRecord) Previous(ofTarget bool) uint64 {
	if ofTarget {
		return n.BeforeOfTarget
	}
	return n.Before
}

// DecodeAuditRecord decodes an AuditRecord. Its AuditEntry shares memory with the record.
func DecodeAuditRecord(record []byte) (n AuditRecord, err error) {
	d := newDecoder(record)
	n.StoredAt = d.int()
	n.Before = d.uint()
	n.BeforeOfTarget = d.uint()
	n.Account = d.string()
	n.ID = d.id()
	n.EarlierID = d.id()
	n.AuditEntry = d.rest
	return n, d.err()
}
