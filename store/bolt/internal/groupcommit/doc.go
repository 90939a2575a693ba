// Package groupcommit lets many steps share a commit of a bbolt file.
//
// A step is one atomic change: a function that receives the batch of its transaction. All waiting
// steps run one after the other in one transaction, which is committed once. So throughput grows
// with the number of callers, while each caller waits for about one commit. No timer delays a
// batch, except under recent heavy load.
//
// A step counts as done only when [transaction.run] reports, at its end, that the commit
// succeeded. A step that fails before it writes does not affect the others. If a step fails or
// panics after it has written, or ends its goroutine, the transaction is rolled back and the other
// steps run again in a new one. If a commit fails, all of its steps fail. If the contents of the
// disk are then unknown, the Writer stops writing.
//
// The package manages the file and its transactions. The steps decide which rows to write.
package groupcommit
