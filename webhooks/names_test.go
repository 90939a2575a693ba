package webhooks_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/storageapi/storageapi/internal/testdir"
)

// hosts holds the names that the test name server knows, with their addresses.
var hosts = map[string][]netip.Addr{
	"hooks.example.com":   {netip.MustParseAddr("127.0.0.1")},
	"other.example.com":   {netip.MustParseAddr("127.0.0.1")},
	"six.example.com":     {netip.MustParseAddr("::1")},
	"both.example.com":    {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
	"mapped.example.com":  {netip.MustParseAddr("::ffff:127.0.0.1")},
	"private.example.com": {netip.MustParseAddr("10.255.255.1"), netip.MustParseAddr("169.254.169.254")},
	"azure.example.com":   {netip.MustParseAddr("168.63.129.16")},
}

// turns holds names whose address changes: each lookup returns the next answer.
var turns = struct {
	sync.Mutex
	left    map[string][][]netip.Addr
	lookups map[string]int
}{left: make(map[string][][]netip.Addr), lookups: make(map[string]int)}

// takeTurns makes successive lookups of a name return these answers, and then no address. All
// addresses are IPv4.
func takeTurns(name string, answers ...[]netip.Addr) {
	turns.Lock()
	defer turns.Unlock()
	turns.left[name], turns.lookups[name] = answers, 0
}

// lookups returns the number of lookups of the name.
func lookups(name string) int {
	turns.Lock()
	defer turns.Unlock()
	return turns.lookups[name]
}

// nameOf returns a name that resolves only to addr.
func nameOf(addr netip.Addr) string {
	return hex.EncodeToString(addr.AsSlice()) + ".addr.example.com"
}

// addresses returns a name's addresses for one record type, and the response code.
func addresses(name string, kind uint16) (addrs []netip.Addr, code uint16) {
	var known bool
	if digits, isAddr := strings.CutSuffix(name, ".addr.example.com"); isAddr {
		bytes, _ := hex.DecodeString(digits)
		addr, ok := netip.AddrFromSlice(bytes)
		addrs, known = []netip.Addr{addr}, ok
	} else if strings.HasSuffix(name, ".hosts.example.com") {
		addrs, known = hosts["hooks.example.com"], true
	} else if name == "servfail.example.com" {
		return nil, serverFailed
	} else if addrs, known = hosts[name]; !known {
		turns.Lock()
		defer turns.Unlock()
		if _, known = turns.left[name]; known && kind == typeA {
			turns.lookups[name]++
			if left := turns.left[name]; len(left) > 0 {
				addrs, turns.left[name] = left[0], left[1:]
			}
		}
	}
	if !known {
		return nil, noSuch
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(addr netip.Addr) bool { return addr.Is4() != (kind == typeA) }), 0
}

// proxied counts the connections to the proxy that the environment names.
var proxied atomic.Int64

// TestMain sets up a name server and an environment with a proxy before any test can use the real
// ones.
func TestMain(m *testing.M) {
	testdir.InMemory()
	if os.Getenv(receiversApart) != "" {
		serveApart()
		os.Exit(0)
	}
	if os.Getenv(systemResolver) != "" {
		os.Exit(m.Run())
	}
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
	os.Exit(m.Run())
}

// unanswered counts the queries for names with the label "silent", which get no answer.
var unanswered atomic.Int64

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
		if strings.Contains(string(query), "\x06silent") {
			unanswered.Add(1)
			continue
		}
		reply := respond(query)
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

const (
	typeA        = 1
	typeAAAA     = 28
	serverFailed = 2
	noSuch       = 3
	headerLen    = 12
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
	kind := binary.BigEndian.Uint16(query[at+1:])
	addrs, code := addresses(strings.ToLower(strings.Join(labels, ".")), kind)

	var answers []byte
	for _, addr := range addrs {
		answers = append(answers, 0xC0, headerLen) // a pointer to the question's name
		answers = binary.BigEndian.AppendUint16(answers, kind)
		answers = append(answers, 0, 1, 0, 0, 0, 0) // class IN, TTL 0 s
		answers = binary.BigEndian.AppendUint16(answers, uint16(len(addr.AsSlice())))
		answers = append(answers, addr.AsSlice()...)
	}
	const recursive = 0x8180 // response, recursion desired and available
	reply := append([]byte{}, query[:2]...)
	for _, field := range []uint16{recursive | code, 1, uint16(len(addrs)), 0, 0} {
		reply = binary.BigEndian.AppendUint16(reply, field)
	}
	return append(append(reply, question...), answers...)
}
