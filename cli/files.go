package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
)

// interruptible waits for do, which cannot be interrupted, or until the context ends.
func (r *run) interruptible(do func() error) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-r.ctx.Done():
		return fmt.Errorf("interrupted; a new file is complete or does not exist: %w", r.ctx.Err())
	}
}

func verify(r *run) error {
	args, err := r.parse(1, 1)
	if err != nil {
		return err
	}
	return r.interruptible(func() error {
		report, err := boltops.Verify(args[0], r.Sealer)
		if err != nil && report.Schema == 0 {
			return err
		}
		problems := make([]string, 0, len(report.Problems))
		for _, problem := range report.Problems {
			problems = append(problems, problem.String())
			if !r.json {
				fmt.Fprintln(r.Stdout, problem)
			}
		}
		found := map[string]any{"schema": report.Schema, "bytes": report.Bytes, "freeBytes": report.FreeBytes, "problems": len(problems) + report.More}
		if report.Counted {
			found["keys"], found["webhooks"], found["events"], found["pending"] = report.Keys, report.Webhooks, report.Events, report.Pending
		}
		if r.json {
			found["problems"] = problems
		}
		shown := r.show(found)
		if err == nil {
			err = report.Err()
		}
		return errors.Join(shown, err)
	})
}

func compact(r *run) error {
	args, err := r.parse(2, 2)
	if err != nil {
		return err
	}
	return r.interruptible(func() error {
		info, err := boltops.Compact(args[0], args[1])
		if err != nil {
			return err
		}
		return r.show(map[string]int64{"rows": int64(info.Rows), "bytesBefore": info.Before, "bytesAfter": info.After})
	})
}

// flagNames replaces field names of package boltops in error texts with the flags that set these
// fields.
var flagNames = strings.NewReplacer(
	"Fence.Abandoned", "-abandoned", "Fence.DeletedKeys, Fence.RotatedKeys and Fence.DisabledKeys", "-revoked", "Fence.NothingRevoked", "-nothing-revoked",
)

// A flagError is an error whose text names flags.
type flagError struct{ error }

func (e flagError) Error() string { return flagNames.Replace(e.error.Error()) }
func (e flagError) Unwrap() error { return e.error }

func restore(r *run) error {
	var fence boltops.Fence
	from := r.flags.String("from", "", "the `backup`")
	to := r.flags.String("to", "", "the `file` to make; nothing may be there")
	r.flags.StringVar(&fence.Abandoned, "abandoned", "", "the `file` that it replaces, moved aside, if it can still be read")
	revoked := r.flags.String("revoked", "", "a `list` of what was revoked since, from the host's audit entries: lines such as \"key.deleted acct_1 key_1\"")
	r.flags.BoolVar(&fence.NothingRevoked, "nothing-revoked", false, "no key was deleted, rotated, paused or shortened since the backup")
	r.flags.BoolVar(&fence.RefuseDamaged, "refuse-damaged", false, "refuse a file with damaged rows, rather than report them")
	r.flags.BoolVar(&fence.NoHold, "no-hold", false, "do not put webhooks on hold: deliveries made since the backup are repeated at once")
	if _, err := r.parse(0, 0); err != nil {
		return err
	}
	if *from == "" || *to == "" {
		return usageError("set -from to the backup, and -to to the file to make")
	}
	if *revoked != "" {
		if err := readRevoked(&fence, *revoked); err != nil {
			return err
		}
	}
	if !r.json {
		fence.Report = func(f boltops.Finding) {
			line := fmt.Sprintf("%s: %s %s", f.Kind, f.Account, f.ID)
			if f.Webhook != "" {
				line += " to " + f.Webhook
			}
			fmt.Fprintln(r.Stdout, line)
		}
	}
	return r.interruptible(func() error {
		info, err := boltops.Restore(*to, *from, fence, bolt.Sealed(r.Sealer))
		if err != nil {
			return flagError{err}
		}
		if r.json {
			return r.show(info)
		}
		for _, row := range info.Damaged {
			fmt.Fprintln(r.Stdout, "damaged row:", row)
		}
		_, err = fmt.Fprintf(r.Stdout, "restored: %+v\n", info)
		return err
	})
}

// readRevoked reads a list with an audit action, an account and an ID on each line. Lines for
// account.erased have no ID.
func readRevoked(fence *boltops.Fence, path string) error {
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
