package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// flushEvery is the number of rows that are aligned together.
const flushEvery = 100

// list prints items as JSON objects, or as rows below a header.
func list[T any](r *run, header string, items iter.Seq2[T, error], row func(T) []string) error {
	encoder := json.NewEncoder(r.Stdout)
	table := newTable(r.Stdout)
	if !r.json {
		fmt.Fprintln(table, strings.ReplaceAll(header, " ", "\t"))
	}
	n := 0
	for item, err := range items {
		switch {
		case err != nil:
			return errors.Join(table.Flush(), err)
		case r.json:
			err = encoder.Encode(item)
		default:
			if _, err = fmt.Fprintln(table, strings.Join(row(item), "\t")); err == nil && n%flushEvery == flushEvery-1 {
				err = table.Flush()
			}
		}
		if err != nil {
			return err
		}
		n++
	}
	return table.Flush()
}

func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 8, 2, ' ', 0) }

// show prints an object as JSON, or with each member on a line.
func (r *run) show(object any) error {
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	if r.json {
		_, err := fmt.Fprintf(r.Stdout, "%s\n", data)
		return err
	}
	table := newTable(r.Stdout)
	members := json.NewDecoder(bytes.NewReader(data))
	if _, err := members.Token(); err != nil { // the brace
		return err
	}
	for members.More() {
		name, err := members.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := members.Decode(&value); err != nil {
			return err
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		fmt.Fprintf(table, "%s\t%s\n", name, text)
	}
	return table.Flush()
}

// timeText formats a time for a table.
func timeText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// timeFlag declares a flag that is a time.
func (r *run) timeFlag(target *time.Time, name, usage string) {
	r.flags.Func(name, usage+": a `date`, or a time such as 2026-01-31T12:00:00Z", func(text string) (err error) {
		for _, layout := range []string{time.RFC3339, time.DateOnly} {
			if *target, err = time.Parse(layout, text); err == nil {
				return nil
			}
		}
		return errors.New("is neither a date nor a time in RFC 3339")
	})
}

// listFlag declares a flag that is a list.
func (r *run) listFlag(target *[]string, name, usage string) {
	r.flags.Func(name, usage+": a `list` separated by commas", func(text string) error {
		*target = strings.Split(text, ",")
		return nil
	})
}

// yesFlag declares the flag that answers the question of confirm.
func (r *run) yesFlag() { r.flags.BoolVar(&r.yes, "yes", false, "do not ask") }

// confirm asks the user whether to continue. warning describes the consequences.
func (r *run) confirm(warning string) error {
	if r.yes {
		return nil
	}
	if !isTerminal(r.Stdin) {
		return usageError(warning + " Nothing was done, because there is no terminal to ask on: repeat the command with -yes.")
	}
	fmt.Fprint(r.Stderr, warning+" Type yes to go on: ")
	if answer, err := r.in.ReadString('\n'); strings.TrimSpace(answer) != "yes" {
		if errors.Is(err, io.EOF) {
			fmt.Fprintln(r.Stderr)
		}
		return errors.New("nothing was done")
	}
	return nil
}

// isTerminal reports whether a stream of the process is a terminal. Tests replace it.
var isTerminal = func(stream any) bool {
	file, is := stream.(*os.File)
	if !is {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&fs.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // the null device is also a character device
	return err != nil || !os.SameFile(info, null)
}

// A bar shows progress: on one line of a terminal, or else with a line for each finished phase.
type bar struct {
	out   io.Writer
	live  bool // out is a terminal
	total int
	drawn time.Time
	ended string // the phase whose line was printed last
}

func (r *run) bar() *bar { return &bar{out: r.Stderr, live: isTerminal(r.Stderr)} }

func (b *bar) draw(what string, n int) {
	if !b.live {
		if n >= b.total && b.ended != what {
			b.ended = what
			fmt.Fprintf(b.out, "%s: %d of %d\n", what, n, b.total)
		}
		return
	}
	if n < b.total && time.Since(b.drawn) < 100*time.Millisecond {
		return
	}
	b.drawn = time.Now()
	const width = 40
	full := width
	if b.total > 0 {
		full = min(width, width*n/b.total)
	}
	fmt.Fprintf(b.out, "\r%-10s [%s%s] %d of %d", what, strings.Repeat("=", full), strings.Repeat(" ", width-full), n, b.total)
}

// end ends the line of the bar if out is a terminal.
func (b *bar) end() {
	if b.live {
		fmt.Fprintln(b.out)
	}
}

// replaceFile gives a file new contents. The old contents stay until the new ones are complete and
// durable.
func replaceFile(path string, write func(io.Writer) error) error {
	return writeFile(path, write, os.Rename)
}

// writeFile writes a file under a temporary name, and calls publish to give it its final name.
func writeFile(path string, write func(io.Writer) error, publish func(temporary, path string) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // fails if publish has renamed the file
	if err = write(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := publish(file.Name(), path); err != nil {
		return err
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil { // makes the name durable, where the system can
		_ = dir.Sync()
		_ = dir.Close()
	}
	return nil
}

// newFile creates a file, which appears when it is complete and durable. It never replaces a file.
func newFile(path string, write func(io.Writer) error) error {
	if _, err := os.Lstat(path); err == nil { // checked before the contents are written, to save the work
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	return writeFile(path, write, publishNew)
}

// link is os.Link. Tests replace it.
var link = os.Link

// publishNew gives a file its final name, unless there is a file with that name.
func publishNew(temporary, path string) error {
	err := link(temporary, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// The file system may have no hard links: reserve the name.
	reserved, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(reserved.Close(), os.Rename(temporary, path)); err != nil {
		_ = os.Remove(path)
	}
	return err
}
