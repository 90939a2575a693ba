// Move copies everything from one store to another, compares both, and marks a source file as left
// so that it is not used again. Stop the host first; afterwards start it on the target store.
//
//	go run github.com/storageapi/storageapi/store/postgres/move -from storage.db -to postgres://user:password@localhost/storage
//	go run github.com/storageapi/storageapi/store/postgres/move -from postgres://user:password@localhost/storage -to back.db
//
// If Move is interrupted, run it again. It then continues from the position that it keeps in a
// file, see -position. It opens sealed secrets with the keys in SEALING_KEYS, and seals them under
// the first key in TO_SEALING_KEYS or, by default, SEALING_KEYS: base64, separated by commas.
package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/transfer"
)

func main() {
	from := flag.String("from", "", "the source: a file, or the URL of a PostgreSQL database")
	to := flag.String("to", "", "the target, which is empty or has a part of an earlier copy: a file, or the URL of a database")
	position := flag.String("position", "move.position", "the file that keeps how far the copy is, until it is complete")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := move(ctx, os.Stdout, *from, *to, *position)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "move:", err)
		os.Exit(1)
	}
}

func move(ctx context.Context, out io.Writer, from, to, position string) (err error) {
	if from == "" || to == "" || from == to {
		return errors.New("set -from and -to, each to a file or to postgres://…")
	}
	if !isURL(from) { // bolt.Open would create it
		if _, err := os.Stat(from); err != nil {
			return err
		}
	}
	source, err := open(ctx, from, os.Getenv("SEALING_KEYS"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := open(ctx, to, cmp.Or(os.Getenv("TO_SEALING_KEYS"), os.Getenv("SEALING_KEYS")))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()

	at, err := readPlace(position, nameOf(from), nameOf(to))
	if err != nil {
		return err
	}
	bar := &bar{out: out, live: isTerminal(out)}
	if bar.total, err = count(ctx, source); err != nil {
		return err
	}
	before := at.records
	var failed error
	sums, err := transfer.Copy(ctx, target, source, transfer.CopyOptions{
		After: at.position, LeftFor: nameOf(to),
		Progress: func(p transfer.Progress) {
			if p.Comparing {
				bar.draw("comparing", p.Records)
				return
			}
			at.position, at.records = p.Position, before+p.Records
			failed = errors.Join(failed, at.write(position))
			bar.draw("copying", at.records)
		},
	})
	bar.end()
	if errors.Is(err, transfer.ErrDiffer) {
		_ = os.Remove(position)
		return fmt.Errorf("%w; run the command again to copy missing records; if the stores still differ, empty the target first", err)
	}
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(out, "%10d %s\n", sums[kind].Count, cmp.Or(titles[kind], string(kind)))
	}
	fmt.Fprintf(out, "Both sides are the same. Start the host on %s.\n", nameOf(to))
	if err := os.Remove(position); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// titles are the displayed names of the kinds of records. The names of the parts of an event follow
// the name of events.
var titles = map[transfer.Kind]string{
	transfer.KindKey: "API keys", transfer.KindWebhook: "webhooks", transfer.KindRequest: "idempotency keys",
	transfer.KindAlert: "states of alerts", transfer.KindDedupKey: "deduplication keys", transfer.KindScan: "state of the file scan",
	transfer.KindEvent: "events", transfer.CountPending: "pending deliveries", transfer.CountSettled: "settled deliveries",
	transfer.CountAttempts: "attempts", transfer.CountBodies: "event bodies",
	transfer.KindRecovery: "recoveries", transfer.KindAuditEntry: "audit entries",
}

func isURL(place string) bool { return strings.Contains(place, "://") }

// nameOf returns a store's name without its password.
func nameOf(place string) string {
	if u, err := url.Parse(place); isURL(place) {
		if err != nil {
			return "a PostgreSQL database"
		}
		return u.Redacted()
	}
	return place
}

func open(ctx context.Context, place, keys string) (store.Store, error) {
	sealer, err := sealerOf(keys)
	if err != nil {
		return nil, err
	}
	if isURL(place) {
		return postgres.Open(ctx, place, postgres.Sealed(sealer))
	}
	return bolt.Open(place, bolt.Sealed(sealer))
}

// sealerOf returns a Keyring with the listed keys, or nil if the list is empty.
func sealerOf(list string) (signing.Sealer, error) {
	if list == "" {
		return nil, nil
	}
	var keys [][]byte
	for text := range strings.SplitSeq(list, ",") {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, errors.New("SEALING_KEYS: must be base64, separated by commas")
		}
		keys = append(keys, key)
	}
	return signing.NewKeyring(keys...)
}

// count returns the number of records in a store.
func count(ctx context.Context, s store.Store) (n int, err error) {
	for page, err := range transfer.Pages(ctx, s, "", 1000) {
		if err != nil {
			return 0, err
		}
		n += len(page.Records)
	}
	return n, nil
}
