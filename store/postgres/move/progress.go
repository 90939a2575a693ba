package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// A place is the progress of a copy, which is kept in a file.
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
	text := fmt.Sprintf("%s\n%s\n%d\n%s\n", p.from, p.to, p.records, p.position)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// A bar shows progress: on one line of a terminal, or else with a line for each finished phase.
type bar struct {
	out   io.Writer
	live  bool // out is a terminal
	total int
	drawn time.Time
	ended string // the phase whose line was printed last
}

// isTerminal reports whether out is a terminal.
func isTerminal(out io.Writer) bool {
	file, is := out.(*os.File)
	if !is {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}

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
	fmt.Fprintf(b.out, "\r%-9s [%s%s] %d of %d", what, strings.Repeat("=", full), strings.Repeat(" ", width-full), n, b.total)
}

// end ends the line of the bar if out is a terminal.
func (b *bar) end() {
	if b.live {
		fmt.Fprintln(b.out)
	}
}
