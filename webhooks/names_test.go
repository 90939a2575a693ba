package webhooks_test

import (
	"context"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
)

// hosts are the names that the tests' name server knows.
var hosts = map[string][]netip.Addr{
	"hooks.example.com":   {netip.MustParseAddr("127.0.0.1")},
	"other.example.com":   {netip.MustParseAddr("127.0.0.1")},
	"six.example.com":     {netip.MustParseAddr("::1")},
	"both.example.com":    {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
	"mapped.example.com":  {netip.MustParseAddr("::ffff:127.0.0.1")},
	"private.example.com": {netip.MustParseAddr("10.255.255.1"), netip.MustParseAddr("169.254.169.254")},
	"azure.example.com":   {netip.MustParseAddr("168.63.129.16")},
}

// proxied counts the connections to the proxy that the environment names.
var proxied atomic.Int64

// TestMain gives the tests a name server and an environment with a proxy, both
// before anything can have looked at the real ones.
func TestMain(m *testing.M) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go answer(server)
		return client, nil
	}}
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			conn, err := proxy.Accept()
			if err != nil {
				return
			}
			proxied.Add(1)
			conn.Close()
		}
	}()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		os.Setenv(name, "http://"+proxy.Addr().String())
	}
	os.Setenv("NO_PROXY", "")
	os.Setenv("no_proxy", "")
	log.SetOutput(io.Discard) // net/http writes there what receivers send unasked
	os.Exit(m.Run())
}

// answer serves one connection of a resolver: DNS over TCP (RFC 1035).
func answer(conn net.Conn) {
	defer conn.Close()
	for {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		reply := respond(query)
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

const (
	typeA     = 1
	typeAAAA  = 28
	noSuch    = 3
	headerLen = 12
)

// respond answers a query with one question.
func respond(query []byte) []byte {
	var labels []string
	at := headerLen
	for query[at] > 0 {
		length := int(query[at])
		labels = append(labels, string(query[at+1:at+1+length]))
		at += 1 + length
	}
	question := query[headerLen : at+5]
	wanted := binary.BigEndian.Uint16(query[at+1:])
	addrs, known := hosts[strings.ToLower(strings.Join(labels, "."))]

	var answers []byte
	count := uint16(0)
	for _, addr := range addrs {
		kind := uint16(typeAAAA)
		if addr.Is4() {
			kind = typeA
		}
		if kind != wanted {
			continue
		}
		count++
		answers = append(answers, 0xC0, headerLen) // the question's name
		answers = binary.BigEndian.AppendUint16(answers, kind)
		answers = append(answers, 0, 1, 0, 0, 0, 0) // class IN, good for 0 s
		answers = binary.BigEndian.AppendUint16(answers, uint16(len(addr.AsSlice())))
		answers = append(answers, addr.AsSlice()...)
	}
	flags := uint16(0x8180) // a response, recursive
	if !known {
		flags |= noSuch
	}
	reply := append([]byte{}, query[:2]...)
	for _, field := range []uint16{flags, 1, count, 0, 0} {
		reply = binary.BigEndian.AppendUint16(reply, field)
	}
	return append(append(reply, question...), answers...)
}
