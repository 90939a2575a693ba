// Package auditlog stores the audit trail in some buckets of a bbolt file.
//
// [List], [Pending], [PendingAccounts] and [Read] read in a transaction. A [Step] changes the trail,
// in a transaction of the file's writer: Append and Add for entries, Take for reported ones, Purge,
// and Erase for an account. [Last], [TargetRow] and [Step.SetLast] are for the store of keys, because
// the row of a key has a field that belongs to the trail.
//
// # The layout
//
// Entries have ascending numbers, in the order in which they were stored. Each links to the previous
// entry of its account, and of its target. So a list begins at the last entry, whose number is in a
// row of the bucket accounts, and follows the links. Pending entries have a bit each. Routine
// entries, of which an account keeps only the newest, have a row with the links to the next entries,
// so that they can be removed from the middle of both lists.
package auditlog
