package storageapitest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/internal/pipenet"
)

// A network resolves the names of receivers and connects to them in memory.
type network struct {
	virtual  bool // in a bubble
	listener *pipenet.Listener
	server   *http.Server

	mu        sync.Mutex
	receivers map[string]*Receiver // by host
	change    chan struct{}        // closed at the next change
}

func newNetwork(virtual bool) *network {
	n := &network{virtual: virtual, listener: pipenet.Listen(), receivers: make(map[string]*Receiver), change: make(chan struct{})}
	n.server = &http.Server{Handler: http.HandlerFunc(n.serve), ErrorLog: log.New(io.Discard, "", 0)}
	n.server.SetKeepAlivesEnabled(false) // each attempt must follow the current script
	go func() { _ = n.server.Serve(n.listener) }()
	return n
}

// close closes all connections and refuses new ones.
func (n *network) close() { _ = n.server.Close() }

// add adds a receiver.
func (n *network) add(host string) (*Receiver, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	host = strings.ToLower(host)
	if host == "" {
		host = "receiver-" + strconv.Itoa(len(n.receivers)+1) + ".example.com"
	}
	if n.receivers[host] != nil {
		return nil, fmt.Errorf("a receiver at %s already exists", host)
	}
	if net.ParseIP(host) != nil || strings.ContainsAny(host, "/:") {
		return nil, errors.New("the host of a receiver must be a name, without a port, such as hooks.customer.example")
	}
	r := &Receiver{URL: "https://" + host + "/", network: n}
	n.receivers[host] = r
	return r, nil
}

// of returns the receiver at a host and port, or nil.
func (n *network) of(address string) *Receiver {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.receivers[strings.ToLower(host)]
}

// dial connects to a receiver. Other names do not resolve, and IP addresses refuse connections.
func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	receiver := n.of(address)
	switch host, _, _ := net.SplitHostPort(address); {
	case receiver == nil && net.ParseIP(host) == nil:
		defer n.changed()
		return nil, &net.DNSError{Err: "no such host: it is not one of the kit's receivers", Name: host, IsNotFound: true}
	case receiver == nil, receiver.refuses():
		defer n.changed()
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return n.listener.Dial(ctx, network, address)
}

// serve passes a request to its receiver.
func (n *network) serve(w http.ResponseWriter, r *http.Request) {
	receiver := n.of(r.Host)
	if receiver == nil {
		panic(http.ErrAbortHandler)
	}
	receiver.serve(w, r)
}

// changed wakes waiters after an attempt.
func (n *network) changed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.change)
	n.change = make(chan struct{})
}

// Polling intervals for changes without an attempt.
const (
	look        = time.Millisecond
	virtualLook = 10 * time.Minute
)

// wait waits until isSo returns true. It returns false if that takes longer than patience.
func (n *network) wait(patience time.Duration, isSo func() bool) bool {
	end := time.Now().Add(patience)
	for {
		n.mu.Lock()
		change := n.change
		n.mu.Unlock()
		pause := look
		if n.virtual {
			synctest.Wait() // until all other goroutines are idle
			pause = virtualLook
		}
		if isSo() {
			return true
		}
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		timer := time.NewTimer(min(pause, left))
		select {
		case <-change:
		case <-timer.C:
		}
		timer.Stop()
	}
}
