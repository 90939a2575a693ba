// Package groupcommit lets many steps share a commit of a bbolt file.
//
// A step is one atomic change: a function that is given the batch of its transaction.
// Steps that wait at the same time run one after the other in one transaction, which is
// committed once. So throughput grows with the number of callers, while each waits for
// about one commit. There is no timer to fill a batch, except after a crowd of callers.
//
// A step is "not done" until one place, the end of [transaction.run], says that its
// commit succeeded. A step that fails before it writes leaves the others alone. One that
// fails after it wrote, panics after it wrote, or ends its goroutine takes the transaction
// down, and the other steps run again in another. If a commit fails, all of its steps
// fail; if it is unknown what the disk holds then, nothing is written any more.
//
// The package knows the file and its transactions. What steps write is the caller's.
package groupcommit
