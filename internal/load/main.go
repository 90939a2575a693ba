// Load sends open-loop traffic through the library's public API to a receiver in a separate
// process, over TLS on loopback, and prints how long Publish and arrival took:
//
//	go run ./internal/load -rate 1000,5000,10000,15000
//	go run ./internal/load -hosts 10000
//	go run ./internal/load -db /var/tmp/load.db
//
// Events are published at their due times, even if earlier calls have not returned, and every
// figure counts from the due time, so a stall delays all events that are due meanwhile (no
// coordinated omission). An interrupt ends the program early, and it prints the figures so far. It
// exits with 1 if an acknowledged event did not arrive or Publish failed, and with 2 for invalid
// flags.
//
// The rows: "begun" is the call to Publish, delayed only by the program itself, whose timers have a
// resolution of a millisecond; "publish" is its return; "arrival" is when the receiver had first
// read the request's head. Bytes and processor time include all concurrent work.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A scenario holds the flags.
type scenario struct {
	rates    []int // events a second, one stage after the other
	duration time.Duration
	hosts    int
	webhooks int
	idle     int
	body     int
	db       string
	patience time.Duration
	fault    string
}

func main() {
	if fault, ok := os.LookupEnv(receiverVariable); ok {
		exit(receive(os.Stdin, os.Stdout, fault))
	}
	s, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	exit(s.run(ctx, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// parse parses the flags.
func parse(args []string, usage io.Writer) (*scenario, error) {
	var s scenario
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(usage)
	rates := flags.String("rate", "1000,5000,10000,15000", "events a second, one after the other")
	flags.DurationVar(&s.duration, "duration", 10*time.Second, "how long each rate lasts")
	flags.IntVar(&s.hosts, "hosts", 1, "receiver hosts, each an address of 127.0.0.0/8 (more than 1: on Linux), at most 100000")
	flags.IntVar(&s.webhooks, "webhooks", 100, "webhooks, each in its own account, at least one for each host; events go to one after the other")
	flags.IntVar(&s.idle, "idle", 0, "Config.Webhooks.Outbound.MaxIdleConns; 0: its default")
	flags.IntVar(&s.body, "body", 256, "approximate size of each event's body, in bytes")
	flags.StringVar(&s.db, "db", "", "the file; it is kept, and can be reused, fuller each time; default: a temporary file")
	flags.DurationVar(&s.patience, "patience", 30*time.Second, "how long to wait for missing events without any progress")
	flags.StringVar(&s.fault, "fault", "", "fault of the receiver, to check that it is detected: lose (acknowledge an event without recording it) or exit")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	for rate := range strings.SplitSeq(*rates, ",") {
		n, err := strconv.Atoi(rate)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-rate: %q must be a whole number above 0", rate)
		}
		s.rates = append(s.rates, n)
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.hosts < 1 || s.hosts > maxHosts:
		return nil, fmt.Errorf("-hosts must be from 1 to %d", maxHosts)
	case s.fault != "" && s.fault != faultLose && s.fault != faultExit:
		return nil, fmt.Errorf("-fault must be %s or %s", faultLose, faultExit)
	case s.duration <= 0 || s.patience <= 0:
		return nil, errors.New("-duration and -patience must be above 0")
	case min(s.webhooks, s.body) < 0:
		return nil, errors.New("-webhooks and -body must not be below 0")
	}
	s.webhooks = max(s.webhooks, s.hosts)
	return &s, nil
}

// run plays the scenario and prints the figures. The error reports lost events. If ctx ends, run
// stops publishing and only waits until the acknowledged events have arrived.
func (s *scenario) run(ctx context.Context, out io.Writer) (err error) {
	if s.db == "" {
		dir, err := os.MkdirTemp("", "storageapi-load-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		s.db = filepath.Join(dir, "load.db")
	}
	l := &ledger{}
	r, err := startReceiver(s.hosts, s.fault, l)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, r.stop()) }()
	h, err := openHost(s, r, l)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, h.close()) }()
	if err := h.prepare(ctx); err != nil {
		return ended(ctx, err)
	}
	for _, rate := range s.rates {
		if ctx.Err() != nil {
			return nil
		}
		if err := h.stage(ctx, out, rate); err != nil {
			return err
		}
	}
	return nil
}

// ended returns nil if err was caused by the interrupt, and err otherwise.
func ended(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}
