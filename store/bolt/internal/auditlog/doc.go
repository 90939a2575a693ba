// Package auditlog stores the audit trail in a bbolt file.
//
// [List], [Pending], [PendingAccounts] and [Read] read in a transaction. A [Step] changes the
// trail, in a transaction of the file's writer: Append and Add store entries, Take marks entries as
// reported, Purge removes expired entries, and Erase removes the entries of an account. The key
// store uses [Last], [TargetRow] and [Step.SetLast], because the row of a key has a field that
// belongs to the trail.
//
// # The layout
//
// Entries have ascending numbers, in the order in which they were stored. Each entry links to the
// previous entry of its account and to the previous entry of its target. A list begins at the last
// entry, whose number is in a row of the bucket accounts, and follows the links. One bit per
// pending entry marks it as pending. An account keeps only its newest routine entries. Each of them
// has a row with links to the next entries, so that it can be removed from the middle of both
// lists.
package auditlog
