// Package pagefile contains all code that knows the layout of bbolt's pages. [Open] opens a file
// with bbolt and turns its panics into errors. [Check] reads the pages without bbolt, which would
// panic on damaged pages or follow their pointers.
package pagefile
