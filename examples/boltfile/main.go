// Boltfile verifies and compacts a file that no host has open. Copy it into your host's own
// program as a subcommand, such as "host verify storage.db".
//
//	go run ./examples/boltfile verify storage.db               # one line per problem; exit status 1 if there are any
//	go run ./examples/boltfile compact smaller.db storage.db
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/storageapi/storageapi/store/bolt/boltops"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "boltfile:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "verify":
		return verify(out, args[1])
	case len(args) == 3 && args[0] == "compact":
		info, err := boltops.Compact(args[1], args[2])
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d rows: %d bytes instead of %d\n", info.Rows, info.After, info.Before)
		return nil
	}
	return errors.New("usage: verify FILE, or compact NEW-FILE FILE")
}

func verify(out io.Writer, path string) error {
	report, err := boltops.Verify(path, nil)
	if err != nil && report.Schema == 0 {
		return err
	}
	for _, problem := range report.Problems {
		fmt.Fprintln(out, problem)
	}
	counted := "its rows are not counted"
	if report.Counted {
		counted = fmt.Sprintf("%d keys, %d webhooks, %d events, %d deliveries pending", report.Keys, report.Webhooks, report.Events, report.Pending)
	}
	fmt.Fprintf(out, "schema %d, %d bytes, %d of them free; %s\n", report.Schema, report.Bytes, report.FreeBytes, counted)
	if err != nil {
		return err
	}
	return report.Err()
}
