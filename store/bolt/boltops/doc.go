// Package boltops has the offline tools for the files of package bolt. [Verify] finds damage:
//
//	report, err := boltops.Verify("storage.db", nil)
//
// [Compact] makes a file smaller. [Restore] makes a file from a backup, and repeats the
// revocations made since the backup:
//
//	info, err := boltops.Restore("storage.db", "backup.db", boltops.Fence{Abandoned: "abandoned.db"})
//
// No other process may have the files open while a tool runs. To export and import accounts while
// a host runs, use package bolt.
package boltops
