// Package pagefile contains everything that knows the layout of bbolt's pages. [Open] opens a file
// with bbolt and turns its panics into errors; [Check] reads the pages without bbolt, which panics on
// damaged pages or follows them.
package pagefile
