// Package groupcommit lets many steps share a commit of a bbolt file.
//
// A step is one atomic change: a function that receives the batch of its transaction. Waiting steps
// run one after the other in one transaction, which is committed once. So throughput grows with the
// number of callers, while each waits for about one commit. No timer delays a batch, except under
// recent heavy load.
//
// A step counts as done only when the end of [transaction.run] reports that its commit succeeded. A
// step that fails before it writes does not affect the others. If a step fails or panics after it
// wrote, or ends its goroutine, the transaction is rolled back and the other steps run again in a
// new one. If a commit fails, all of its steps fail; if the contents of the disk are then unknown,
// the Writer stops writing.
//
// The package manages the file and its transactions. The steps decide what to write.
package groupcommit
