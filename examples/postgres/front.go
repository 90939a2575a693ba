package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"sync/atomic"
)

// A front is a load balancer. It sends each request to the next node. If that node does not answer,
// it tries the following nodes.
type front struct {
	httputil.ReverseProxy
	nodes []string
	turn  atomic.Uint64
}

// newFront returns a front for n nodes, and chooses their addresses.
func newFront(n int) (*front, error) {
	f := &front{}
	for range n {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		f.nodes = append(f.nodes, free.Addr().String())
		defer func() { _ = free.Close() }()
	}
	f.Rewrite = func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", "node"
		r.SetXForwarded()
	}
	// Every request has the host "node"; the dialer chooses a node that accepts connections.
	dialer := &net.Dialer{}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	transport.DialContext = func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		first := f.turn.Add(1)
		for i := range f.nodes {
			conn, err = dialer.DialContext(ctx, network, f.nodes[(first+uint64(i))%uint64(len(f.nodes))])
			if err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
	f.Transport = transport
	return f, nil
}
