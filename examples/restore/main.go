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
	"flag"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/storageapi/storageapi/store/bolt/boltops"
)

func main() {
	log.SetFlags(0)
	var fence boltops.Fence
	from := flag.String("from", "", "the `backup`")
	to := flag.String("to", "", "the `file` to make; nothing may be there")
	flag.StringVar(&fence.Abandoned, "abandoned", "", "the `file` that it replaces, moved aside, if it can still be read")
	revoked := flag.String("revoked", "", "a `list` of what was revoked since, from the host's audit entries: lines such as \"key.deleted acct_1 key_1\"")
	flag.BoolVar(&fence.NothingRevoked, "nothing-revoked", false, "nothing was revoked or rotated since the backup")
	flag.BoolVar(&fence.RefuseDamaged, "refuse-damaged", false, "refuse a file with damaged rows, rather than report them")
	flag.BoolVar(&fence.NoHold, "no-hold", false, "do not put webhooks on hold: what was sent since is sent again at once")
	flag.Parse()
	if *revoked != "" {
		if err := read(&fence, *revoked); err != nil {
			log.Fatal(err)
		}
	}
	fence.Report = func(f boltops.Finding) {
		if f.Webhook == "" {
			fmt.Printf("%s: %s %s\n", f.Kind, f.Account, f.ID)
		} else {
			fmt.Printf("%s: %s %s to %s\n", f.Kind, f.Account, f.ID, f.Webhook)
		}
	}
	info, err := boltops.Restore(*to, *from, fence)
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range info.Damaged {
		fmt.Println("damaged row:", row)
	}
	fmt.Printf("restored: %+v\n", info)
}

// read reads a list with an audit action, an account and an ID on each line. Lines for
// account.erased have no ID.
func read(fence *boltops.Fence, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	lists := map[string]*[]boltops.Ref{"key.deleted": &fence.DeletedKeys, "key.rotated": &fence.RotatedKeys, "webhook.deleted": &fence.DeletedWebhooks}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 2 && fields[0] == "account.erased" {
			fence.ErasedAccounts = append(fence.ErasedAccounts, fields[1])
			continue
		}
		if len(fields) != 3 || lists[fields[0]] == nil {
			return fmt.Errorf("%s: %q is not key.deleted, key.rotated or webhook.deleted, an account and an id; or account.erased and an account", path, lines.Text())
		}
		list := lists[fields[0]]
		*list = append(*list, boltops.Ref{Account: fields[1], ID: fields[2]})
	}
	return lines.Err()
}
