// Package cli gives a host's own binary commands for its operators and for developers of receivers:
//
//	if len(os.Args) > 1 {
//		os.Exit(cli.Run(ctx, os.Args[1:], cli.Config{Open: open}))
//	}
//
// Run without arguments lists the commands. There are three kinds:
//
//   - Commands for keys, webhooks and accounts, stats and backup use a running host through
//     [storageapi.Handler.Operations] at -ops or $OPS. Without it they open the service themselves,
//     with [Config.Open].
//   - verify, compact, restore and move work on closed files and stores.
//   - listen sends an account's events to a receiver on this machine.
//
// Results go to the standard output: aligned text or, with -json, JSON objects on separate lines.
// Questions, progress and errors go to the standard error. Commands that cannot be undone ask on a
// terminal; elsewhere they require -yes.
package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
)

// Config configures [Run]. The zero Config runs the commands that need no service.
type Config struct {
	// Name is the program's name in help and error texts. Default: the name of the running program.
	Name string

	// Open opens the service as the host does at its start, but without calling Run. It returns a
	// function that closes the service, such as [storageapi.Handler.Close]. Default: the commands
	// require -ops.
	Open func(ctx context.Context) (api *storageapi.Handler, closeAll func() error, err error)

	// OpenStore opens a store for the command move, which calls it for the source and then for the
	// target. Default: [bolt.Open] with the Sealer.
	OpenStore func(ctx context.Context, place string) (store.Store, error)

	// Sealer is what the host passes to [bolt.Sealed]. Default: none.
	Sealer signing.Sealer

	// Stdin, Stdout and Stderr are the standard streams. Default: [os.Stdin] and so on.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// The exit statuses that [Run] returns.
const (
	ExitDone   = 0
	ExitFailed = 1 // the command failed or was declined, or verify found damage
	ExitUsage  = 2 // the arguments are invalid, or -yes is missing; nothing was done
)

// A command is one of the commands that [Run] offers.
type command struct {
	name, args, does string
	run              func(*run) error
}

func commands() []command {
	return []command{
		{"keys create", "ACCOUNT", "create a key; its value is shown once", createKey},
		{"keys list", "ACCOUNT", "list the keys of an account", listKeys},
		{"keys revoke", "ACCOUNT KEY…", "delete keys, which stop working at once", revokeKeys},
		{"keys find", "", "find the key with the value on the standard input", findKey},
		{"webhooks list", "ACCOUNT", "list the webhooks of an account", listWebhooks},
		{"webhooks failing", "", "list the failing webhooks of all accounts", listFailing},
		{"webhooks explain", "ACCOUNT WEBHOOK EVENT…", "show why events were or were not delivered", explain},
		{"webhooks resend", "ACCOUNT WEBHOOK EVENT…", "send events again", resend},
		{"webhooks recover", "ACCOUNT WEBHOOK", "send the events of a time range again", recoverEvents},
		{"webhooks release", "", "release all webhooks that a restore put on hold", release},
		{"accounts list", "", "list the sizes of all accounts", listAccounts},
		{"accounts export", "ACCOUNT", "write the data of an account as lines of JSON", exportAccount},
		{"accounts erase", "ACCOUNT", "remove the data of an account", eraseAccount},
		{"stats", "", "show figures", stats},
		{"backup", "FILE", "write a copy of the service's file; - means the standard output", backup},
		{"verify", "FILE", "look for damage in a closed file", verify},
		{"compact", "NEW-FILE FILE", "write a copy of a closed file without its free pages", compact},
		{"restore", "", "make a file from a backup, without what was revoked since", restore},
		{"move", "", "copy everything from one store to another", move},
		{"listen", "", "post an account's events to a receiver on this machine", listen},
	}
}

// Run runs the command that args name and returns the exit status of the program. When ctx ends,
// Run returns soon; verify, compact and restore then continue in the background, so the program
// should exit. Where hard links work, it leaves no incomplete file under a final name.
func Run(ctx context.Context, args []string, config Config) int {
	config.Name = cmp.Or(config.Name, filepath.Base(os.Args[0]))
	if config.Stdin == nil {
		config.Stdin = os.Stdin
	}
	if config.Stdout == nil {
		config.Stdout = os.Stdout
	}
	if config.Stderr == nil {
		config.Stderr = os.Stderr
	}
	if config.OpenStore == nil {
		config.OpenStore = func(_ context.Context, place string) (store.Store, error) {
			if isURL(place) {
				return nil, usageError("this program opens only files: set cli.Config.OpenStore to use a database")
			}
			return bolt.Open(place, bolt.Sealed(config.Sealer))
		}
	}
	for _, c := range commands() {
		words := strings.Fields(c.name)
		if len(args) < len(words) || strings.Join(args[:len(words)], " ") != c.name {
			continue
		}
		return runCommand(ctx, c, args[len(words):], config)
	}
	fmt.Fprintf(config.Stderr, "usage: %s COMMAND, where %[1]s COMMAND -h explains the command:\n", config.Name)
	for _, c := range commands() {
		fmt.Fprintf(config.Stderr, "  %-40s %s\n", strings.TrimSpace(c.name+" "+c.args), c.does)
	}
	return ExitUsage
}

func runCommand(ctx context.Context, c command, args []string, config Config) int {
	r := &run{Config: config, ctx: ctx, given: args, in: bufio.NewReader(config.Stdin)}
	r.flags = flag.NewFlagSet(c.name, flag.ContinueOnError)
	r.flags.SetOutput(config.Stderr)
	r.flags.BoolVar(&r.json, "json", false, "print JSON")
	r.flags.Usage = func() {
		fmt.Fprintf(config.Stderr, "usage: %s\n%s\n", strings.TrimSpace(config.Name+" "+c.name+" [flags] "+c.args), c.does)
		r.flags.PrintDefaults()
	}
	err := c.run(r)
	for _, closeOne := range r.closers {
		err = errors.Join(err, closeOne())
	}
	_, isUsage := errors.AsType[usageError](err)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ExitDone
	case errors.Is(err, errFlags): // package flag has printed it
		return ExitUsage
	case err == nil:
		return ExitDone
	}
	fmt.Fprintf(config.Stderr, "%s %s: %v\n", config.Name, c.name, err)
	if isUsage {
		return ExitUsage
	}
	return ExitFailed
}

// A run is one execution of a command.
type run struct {
	Config
	ctx     context.Context
	flags   *flag.FlagSet
	given   []string // arguments with flags
	in      *bufio.Reader
	closers []func() error

	json, yes bool
	ops       string
	attempts  int // maximum attempts of a request to a running host; 0 means a default
}

// A usageError is an error in the arguments. Nothing was done.
type usageError string

func (e usageError) Error() string { return string(e) }

var errFlags = errors.New("invalid flags")

// parse parses the flags, which may be before, between and after the arguments, and returns the
// arguments. There must be least to most arguments.
func (r *run) parse(least, most int) (args []string, err error) {
	rest := r.given
	for {
		if err := r.flags.Parse(rest); errors.Is(err, flag.ErrHelp) {
			return nil, err
		} else if err != nil {
			return nil, errFlags
		}
		if r.flags.NArg() == 0 {
			break
		}
		parsed := rest[:len(rest)-r.flags.NArg()]
		if len(parsed) > 0 && parsed[len(parsed)-1] == "--" {
			args = append(args, r.flags.Args()...)
			break
		}
		args = append(args, r.flags.Arg(0))
		rest = r.flags.Args()[1:]
	}
	if len(args) < least || len(args) > most {
		r.flags.Usage()
		return nil, errFlags
	}
	return args, nil
}
