// Package boltops has the offline tools for the files of package bolt. [Verify] finds damage:
//
//	report, err := boltops.Verify("storage.db", nil)
//
// [Compact] makes a file smaller, and [Restore] makes a file from a backup that brings nothing back
// that was revoked since:
//
//	info, err := boltops.Restore("storage.db", "backup.db", boltops.Fence{Abandoned: "abandoned.db"})
//
// No process may have the files open meanwhile. Package bolt exports and imports accounts while a host runs.
package boltops
