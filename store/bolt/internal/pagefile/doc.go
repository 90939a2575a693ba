// Package pagefile contains all code that depends on the layout of bbolt's pages. [Open] opens a
// file with bbolt, and turns bbolt's panics into errors. [Check] reads the pages without bbolt,
// because bbolt would panic on damaged pages or follow their pointers.
package pagefile
