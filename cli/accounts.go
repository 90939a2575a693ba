package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strconv"

	"github.com/storageapi/storageapi/client"
	"github.com/storageapi/storageapi/store"
)

// lines returns an iterator over the JSON lines at a path.
func lines[T any](r *run, c *client.Client, path string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		reader, writer := io.Pipe()
		defer func() { _ = reader.Close() }() // ends Do
		go func() { writer.CloseWithError(c.Do(r.ctx, "GET", path, nil, writer)) }()
		decoder := json.NewDecoder(bufio.NewReader(reader))
		for {
			var item T
			err := decoder.Decode(&item)
			if err == io.EOF || !yield(item, err) || err != nil {
				return
			}
		}
	}
}

func listAccounts(r *run) error {
	r.online()
	_, c, err := r.parseService(0, 0)
	if err != nil {
		return err
	}
	return list(r, "KEYS WEBHOOKS PENDING ACCOUNT", lines[store.AccountSize](r, c, "/accounts"), func(a store.AccountSize) []string {
		return []string{strconv.Itoa(a.Keys), strconv.Itoa(a.Webhooks), strconv.Itoa(a.Pending), a.Account}
	})
}

func accountPath(name string) string { return "/accounts/" + url.PathEscape(name) }

func exportAccount(r *run) error {
	r.online()
	file := r.flags.String("o", "", "the `file` to create; default: the standard output")
	args, c, err := r.parseService(1, 1)
	if err != nil {
		return err
	}
	write := func(w io.Writer) error { return c.Do(r.ctx, "GET", accountPath(args[0]), nil, w) }
	if *file == "" {
		return write(r.Stdout)
	}
	return newFile(*file, write)
}

func eraseAccount(r *run) error {
	r.online()
	r.yesFlag()
	args, err := r.parse(1, 1)
	if err != nil {
		return err
	}
	if err := r.confirm("This removes all keys, webhooks, events and audit entries of " + args[0] + "."); err != nil {
		return err
	}
	r.attempts = 1 // the receipt of a second attempt would omit the records that the first one removed
	c, err := r.service("", "")
	if err != nil {
		return err
	}
	var receipt store.Receipt
	if err := c.Do(r.ctx, "DELETE", accountPath(args[0]), nil, &receipt); err != nil {
		return fmt.Errorf("%w; repeat the command: it continues the erasure, and counts zero records if it was complete", err)
	}
	return r.show(receipt)
}

func stats(r *run) error {
	r.online()
	_, c, err := r.parseService(0, 0)
	if err != nil {
		return err
	}
	var figures json.RawMessage
	if err := c.Do(r.ctx, "GET", "/stats", nil, &figures); err != nil {
		return err
	}
	return r.show(figures)
}

func backup(r *run) error {
	r.online()
	args, c, err := r.parseService(1, 1)
	if err != nil {
		return err
	}
	write := func(w io.Writer) error { return c.Do(r.ctx, "GET", "/backup", nil, w) }
	if args[0] == "-" {
		return write(r.Stdout)
	}
	if err := newFile(args[0], write); err != nil {
		return err
	}
	return r.show(map[string]string{"backup": args[0]})
}
