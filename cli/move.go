package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/transfer"
)

func move(r *run) (err error) {
	from := r.flags.String("from", "", "the source, which no host uses: a file, or the `URL` of a database")
	to := r.flags.String("to", "", "the target, which is empty or has a part of an earlier copy: a file, or the `URL` of a database")
	position := r.flags.String("position", "move.position", "the `file` that keeps how far the copy is, until it is complete")
	if _, err := r.parse(0, 0); err != nil {
		return err
	}
	if *from == "" || *to == "" || *from == *to {
		return usageError("set -from and -to, each to a file or to a URL")
	}
	if !isURL(*from) { // bolt.Open would create it
		if _, err := os.Stat(*from); err != nil {
			return err
		}
	}
	source, err := r.OpenStore(r.ctx, *from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := r.OpenStore(r.ctx, *to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	sums, err := r.copyStore(target, source, nameOf(*to), nameOf(*from), *position)
	if err != nil {
		return err
	}
	counts := make(map[string]int)
	for kind, sum := range sums {
		counts[string(kind)] = sum.Count
	}
	if r.json {
		return r.show(counts)
	}
	for _, kind := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(r.Stdout, "%10d %s\n", sums[kind].Count, cmp.Or(titles[kind], string(kind)))
	}
	fmt.Fprintf(r.Stdout, "Both sides are the same. Start the host on %s.\n", nameOf(*to))
	return nil
}

// copyStore copies a store and shows the progress. It records the progress in the file position.
func (r *run) copyStore(target, source store.Store, to, from, position string) (transfer.Summary, error) {
	at, err := readPlace(position, from, to)
	if err != nil {
		return nil, err
	}
	bar := r.bar()
	if bar.total, err = count(r.ctx, source); err != nil {
		return nil, err
	}
	before := at.records
	var failed error
	sums, err := transfer.Copy(r.ctx, target, source, transfer.CopyOptions{
		After: at.position, LeftFor: to,
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
		return nil, fmt.Errorf("%w; run the command again to copy missing records; if the stores still differ, empty the target first", err)
	}
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	if err := os.Remove(position); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return sums, nil
}

// titles are the displayed names of the kinds of records. KindEvent is followed by the kinds that
// count parts of events.
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
			return "a database"
		}
		u.RawQuery = "" // the query can contain the password, too
		return u.Redacted()
	}
	return place
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

// A place is the progress of a copy, as stored in a file.
type place struct {
	from, to string
	records  int
	position string
}

// readPlace returns the place of an earlier copy between the same stores, or the beginning.
func readPlace(file, from, to string) (place, error) {
	begin := place{from: from, to: to}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return begin, nil
	}
	if err != nil {
		return begin, err
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 4 || lines[0] != from || lines[1] != to {
		return begin, fmt.Errorf("%s records the progress of a copy between other stores: remove it, or set -position", file)
	}
	at := begin
	if _, err := fmt.Sscan(lines[2], &at.records); err != nil {
		return begin, fmt.Errorf("cannot read %s: remove it to restart the copy from the beginning", file)
	}
	at.position = lines[3]
	return at, nil
}

// write stores the place atomically.
func (p *place) write(file string) error {
	return replaceFile(file, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s\n%s\n%d\n%s\n", p.from, p.to, p.records, p.position)
		return err
	})
}
