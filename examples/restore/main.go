// Command restore creates a file from a backup, without the keys, webhooks and accounts that were
// revoked or erased since the backup. docs/operations.md has all steps. Copy it to your own module,
// and pass the same options as your host when it opens its file, such as bolt.Sealed.
//
//	restore -from backup.db -abandoned abandoned.db -to storage.db
//
// It prints each finding and each damaged row on a line, and then a summary.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/storageapi/storageapi/store/bolt/boltops"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, flags.Replace(err.Error()))
		os.Exit(1)
	}
}

// flags replaces field names of package boltops in error texts with the flags that set these
// fields.
var flags = strings.NewReplacer(
	"Fence.Abandoned", "-abandoned", "Fence.DeletedKeys and Fence.RotatedKeys", "-revoked", "Fence.NothingRevoked", "-nothing-revoked",
)

func run(out io.Writer, args []string) error {
	var fence boltops.Fence
	set := flag.NewFlagSet("restore", flag.ExitOnError)
	from := set.String("from", "", "the `backup`")
	to := set.String("to", "", "the `file` to make; nothing may be there")
	set.StringVar(&fence.Abandoned, "abandoned", "", "the `file` that it replaces, moved aside, if it can still be read")
	revoked := set.String("revoked", "", "a `list` of what was revoked since, from the host's audit entries: lines such as \"key.deleted acct_1 key_1\"")
	set.BoolVar(&fence.NothingRevoked, "nothing-revoked", false, "no key was deleted, rotated, paused or shortened since the backup")
	set.BoolVar(&fence.RefuseDamaged, "refuse-damaged", false, "refuse a file with damaged rows, rather than report them")
	set.BoolVar(&fence.NoHold, "no-hold", false, "do not put webhooks on hold: deliveries made since the backup are repeated at once")
	_ = set.Parse(args) // exits on an error
	if *from == "" || *to == "" {
		return errors.New("set -from to the backup, and -to to the file to make")
	}
	if *revoked != "" {
		if err := read(&fence, *revoked); err != nil {
			return err
		}
	}
	fence.Report = func(f boltops.Finding) {
		if f.Webhook == "" {
			fmt.Fprintf(out, "%s: %s %s\n", f.Kind, f.Account, f.ID)
		} else {
			fmt.Fprintf(out, "%s: %s %s to %s\n", f.Kind, f.Account, f.ID, f.Webhook)
		}
	}
	info, err := boltops.Restore(*to, *from, fence)
	if err != nil {
		return err
	}
	for _, row := range info.Damaged {
		fmt.Fprintln(out, "damaged row:", row)
	}
	fmt.Fprintf(out, "restored: %+v\n", info)
	return nil
}

// read reads a list with an audit action, an account and an ID on each line. Lines for
// account.erased have no ID.
func read(fence *boltops.Fence, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	lists := map[string]*[]boltops.Ref{"key.deleted": &fence.DeletedKeys, "key.rotated": &fence.RotatedKeys, "key.changed": &fence.DisabledKeys, "webhook.deleted": &fence.DeletedWebhooks}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 2 && fields[0] == "account.erased" {
			fence.ErasedAccounts = append(fence.ErasedAccounts, fields[1])
			continue
		}
		if len(fields) != 3 || lists[fields[0]] == nil {
			return fmt.Errorf("%s: %q is invalid: want key.deleted, key.rotated, key.changed or webhook.deleted with an account and an ID, or account.erased with an account", path, lines.Text())
		}
		list := lists[fields[0]]
		*list = append(*list, boltops.Ref{Account: fields[1], ID: fields[2]})
	}
	return lines.Err()
}
