package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/client"
	"github.com/storageapi/storageapi/internal/pipenet"
	"github.com/storageapi/storageapi/store/bolt"
)

// online declares the flags of a command that uses the service.
func (r *run) online() {
	r.flags.StringVar(&r.ops, "ops", os.Getenv("OPS"), "the `URL` of a running host's operations; default: $OPS, or else open the service")
}

// service returns a client of the service's operations, below the given path. Its requests carry the
// value of a key, unless value is empty.
func (r *run) service(path, value string) (*client.Client, error) {
	if r.ops != "" {
		return client.New(strings.TrimSuffix(r.ops, "/")+path, value, client.Options{HTTP: &http.Client{}, Attempts: cmp.Or(r.attempts, 2)}) // a backup may take hours
	}
	if r.Open == nil {
		return nil, usageError("set -ops to the URL of a running host's operations")
	}
	api, closeAll, err := r.Open(r.ctx)
	if errors.Is(err, bolt.ErrLocked) {
		err = fmt.Errorf("%w; to use a running host, set -ops to the URL of its port for operators", err)
	}
	if err != nil {
		return nil, err
	}
	network := pipenet.Listen()
	server := &http.Server{Handler: api.Operations(storageapi.HealthThresholds{NoRun: true})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(network)
	}()
	transport := &http.Transport{DialContext: network.Dial}
	r.closers = append(r.closers, func() error {
		transport.CloseIdleConnections()
		err := server.Shutdown(context.WithoutCancel(r.ctx))
		<-served
		return errors.Join(err, closeAll())
	})
	return client.New("http://operations"+path, value, client.Options{HTTP: &http.Client{Transport: transport}, Attempts: 1})
}

// parseService is like parse, and also returns a client of the service's operations.
func (r *run) parseService(least, most int) (args []string, c *client.Client, err error) {
	if args, err = r.parse(least, most); err != nil {
		return nil, nil, err
	}
	c, err = r.service("", "")
	return args, c, err
}

// parseAccount is like parse, and also returns a client of the API of the account that the first
// argument names.
func (r *run) parseAccount(least, most int) (args []string, c *client.Client, err error) {
	if args, err = r.parse(least, most); err != nil {
		return nil, nil, err
	}
	c, err = r.service(accountPath(args[0])+"/v2", "")
	return args, c, err
}
