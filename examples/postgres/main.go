// Postgres is a storage service of two nodes behind one address, on one database. If
// either node is killed, the other continues to answer requests, and takes over the killed
// node's deliveries within a few seconds.
//
//	DATABASE_URL=postgres://user:password@localhost/storage go run .
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/postgres"
)

const account = "acct_1"

func main() {
	node := flag.String("node", "", "be the node at this address; without it, run them all")
	listen := flag.String("listen", "127.0.0.1:8080", "the address of the service")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch dsn := os.Getenv("DATABASE_URL"); {
	case dsn == "":
		err = errors.New("set DATABASE_URL to a PostgreSQL database, such as postgres://user:password@localhost/storage")
	case *node != "":
		err = runNode(ctx, dsn, *node)
	default:
		err = run(ctx, os.Stdout, dsn, *listen)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "postgres:", err)
		os.Exit(1)
	}
}

// run runs the nodes and the front until ctx is done.
func run(ctx context.Context, out io.Writer, dsn, listen string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	token, err := prepare(ctx, dsn)
	if err != nil {
		return err
	}
	front, err := newFront(2)
	if err != nil {
		return err
	}
	var nodes sync.WaitGroup
	for _, address := range front.nodes {
		nodes.Go(func() { keepRunning(ctx, out, address) })
	}
	server := &http.Server{Addr: listen, Handler: front, ReadHeaderTimeout: 10 * time.Second}
	if token == "" {
		token = "$KEY" // printed only at the first start, and not stored
	}
	fmt.Fprintf(out, "The service is at http://%s; try\n\n\tcurl -H \"Api-Key: %s\" http://%s/v2/environments\n\n", listen, token, listen)
	fmt.Fprintln(out, "and kill -9 a node meanwhile.")
	err = listenAndServe(ctx, server)
	cancel()
	nodes.Wait()
	return err
}

// prepare migrates the database and creates the first key of the account. If the account
// already has a key, token is empty.
func prepare(ctx context.Context, dsn string) (token string, err error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	if err := postgres.Migrate(ctx, pool); err != nil {
		return "", err
	}
	if _, err := pool.Exec(ctx, `create table if not exists files (account text, id text, expires_at timestamptz, primary key (account, id))`); err != nil {
		return "", err
	}
	store, err := postgres.New(ctx, pool)
	if err != nil {
		return "", err
	}
	defer func() { _ = store.Close() }()
	api, err := storageapi.NewHandler(storageapi.Config{Store: store})
	if err != nil {
		return "", err
	}
	defer func() { _ = api.Close() }()
	_, made, err := api.Keys.Create(ctx, account, apikeys.CreateParams{Name: "bootstrap", Scopes: api.Keys.Scopes().All(), First: true}) // in Go, never over HTTP
	if errors.Is(err, apikeys.ErrNotFirst) {
		return "", nil
	}
	return made.Reveal(), err
}

// keepRunning runs a node, and restarts it two seconds after it exits.
func keepRunning(ctx context.Context, out io.Writer, address string) {
	self, err := os.Executable()
	for err == nil && ctx.Err() == nil {
		node := exec.CommandContext(ctx, self, "-node", address)
		node.Stderr = os.Stderr
		node.Cancel = func() error { return node.Process.Signal(os.Interrupt) }
		if err = node.Start(); err == nil {
			fmt.Fprintf(out, "node %s has the process id %d\n", address, node.Process.Pid)
			_ = node.Wait()
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}
