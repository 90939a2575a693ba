package outbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
)

// post makes a POST to an address and fails the test unless the status is 204.
func post(t *testing.T, client *Client, address string) {
	t.Helper()
	if response := tryPost(t, client, address); response.Status != http.StatusNoContent {
		t.Fatalf("POST to %s: got %+v, want status 204", address, response)
	}
}

func tryPost(t *testing.T, client *Client, address string) Response {
	t.Helper()
	target, err := NewTarget("https://"+address+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return client.Post(new(Canceler), Request{Target: target, Body: []byte("{}"), Deadline: time.Now().Add(time.Minute)})
}

// serve answers each request on a connection with 204 until the connection is closed.
func serve(conn net.Conn) {
	defer conn.Close()
	request := make([]byte, 1<<10)
	for n, err := conn.Read(request); err == nil && n > 0; n, err = conn.Read(request) {
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
	}
}

// newInMemory returns a client for in-memory receivers, and a counter of its dials.
func newInMemory(maxIdle int) (*Client, *atomic.Int64) {
	var dials atomic.Int64
	return New(Config{Plain: true, MaxIdle: maxIdle, Dial: func(context.Context, Caller, string) (net.Conn, error) {
		dials.Add(1)
		local, remote := net.Pipe()
		go serve(remote)
		return pipe{local}, nil
	}}), &dials
}

// A pipe is an in-memory connection that never receives unexpected bytes.
type pipe struct{ net.Conn }

func (pipe) Poll([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

func TestClient_ManyHosts_ConnectsOnceToEach(t *testing.T) {
	t.Parallel()
	const hosts, goroutines = 2000, 8
	client, dials := newInMemory(hosts)
	defer client.CloseIdle()
	for range 3 {
		var group sync.WaitGroup
		for g := range goroutines {
			group.Go(func() {
				for i := g; i < hosts; i += goroutines {
					post(t, client, fmt.Sprintf("host-%d.example.com", i))
				}
			})
		}
		group.Wait()
	}
	if n := dials.Load(); n != hosts {
		t.Errorf("%d connections to %d hosts, want one each", n, hosts)
	}
}

// If descriptors run out, idle connections are closed to free some for concurrent deliveries.
func TestClient_OutOfDescriptors_ClosesIdleConnections(t *testing.T) {
	t.Parallel()
	client, _ := newInMemory(1000)
	defer client.CloseIdle()
	const descriptors, goroutines = 128, 16
	var open atomic.Int64
	through := client.dial
	client.dial = func(ctx context.Context, by Caller, address string) (net.Conn, error) {
		for {
			n := open.Load()
			if n == descriptors {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EMFILE}
			}
			if open.CompareAndSwap(n, n+1) {
				break
			}
		}
		conn, err := through(ctx, by, address)
		return &descriptor{Conn: conn, open: &open}, err
	}
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for i := range 30 {
				if response := tryPost(t, client, fmt.Sprintf("host-%d-%d.example.com", g, i)); response.Status != http.StatusNoContent {
					t.Errorf("got %+v, want status 204", response)
				}
			}
		})
	}
	group.Wait()
	if idle := client.pool.size(); idle == 0 || int64(idle) != open.Load() {
		t.Errorf("%d idle connections, want %d: all that are open", idle, open.Load())
	}
	client.CloseIdle()
	open.Store(descriptors) // simulates a process that uses all its descriptors elsewhere
	if response := tryPost(t, client, "host.example.com"); response.Failure != errExhausted || response.Fault != Ours {
		t.Errorf("without a free descriptor: got %+v, want %v", response, errExhausted)
	}
}

type descriptor struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (*descriptor) Poll([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

func (d *descriptor) Close() error {
	d.once.Do(func() { d.open.Add(-1) })
	return d.Conn.Close()
}

// A tlsReceiver counts its handshakes.
type tlsReceiver struct {
	*httptest.Server
	conns, resumed, offered atomic.Int64
}

const preSharedKey = 41 // the TLS 1.3 extension that offers a session

// newTLSReceiver starts a receiver, and returns it with a client that trusts it.
func newTLSReceiver(t *testing.T, maxIdle int, config *tls.Config) (*tlsReceiver, *Client) {
	t.Helper()
	r := &tlsReceiver{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.TLS.DidResume {
			r.resumed.Add(1)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	r.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.conns.Add(1)
		}
	}
	before := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.Extensions, preSharedKey) {
			r.offered.Add(1)
		}
		if before != nil {
			return before(hello)
		}
		return nil, nil
	}
	r.TLS = config
	r.StartTLS()
	t.Cleanup(r.Close)
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	guard := NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil)
	client := New(Config{Dial: guard.Dial, RootCAs: roots, MaxIdle: maxIdle})
	t.Cleanup(client.CloseIdle)
	return r, client
}

func (r *tlsReceiver) address() string { return strings.TrimPrefix(r.URL, "https://") }

func TestSessions_NewConnectionToKnownReceiver_Resumes(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver, client := newTLSReceiver(t, 8, &tls.Config{MaxVersion: version})
			for range 3 {
				post(t, client, receiver.address())
				client.CloseIdle()
			}
			if conns, resumed := receiver.conns.Load(), receiver.resumed.Load(); conns != 3 || resumed != 2 {
				t.Errorf("%d of %d handshakes resumed a session, want 2 of 3", resumed, conns)
			}
		})
	}
}

// Different owners can have receivers on different ports of a host.
func TestSessions_OtherPortOfSameHost_AreNotShared(t *testing.T) {
	t.Parallel()
	one, client := newTLSReceiver(t, 8, &tls.Config{})
	other, _ := newTLSReceiver(t, 8, &tls.Config{})
	post(t, client, one.address())
	post(t, client, other.address())
	client.CloseIdle()
	if n := other.offered.Load(); n != 0 {
		t.Errorf("%d sessions of another port were offered, want 0", n)
	}
	post(t, client, other.address())
	if n := other.resumed.Load(); n != 1 {
		t.Errorf("%d sessions were resumed, want 1", n)
	}
}

func TestSessions_MoreReceiversThanPlaces_KeptSessionsAreUsed(t *testing.T) {
	t.Parallel()
	kept := sessions{max: 100}
	found := 0
	for round := range 20 {
		for i := range 200 {
			address := fmt.Sprint(i)
			if _, ok := kept.get(address); ok && round >= 10 {
				found++
			}
			kept.put(address, new(tls.ClientSessionState))
			if n := len(kept.kept); n > 100 {
				t.Fatalf("%d sessions are kept, want at most 100", n)
			}
		}
	}
	if found < 600 {
		t.Errorf("%d of 2000 handshakes found a session, want at least 600", found)
	}
}

func TestSessions_ReceiverRejectsItsOwnSession_HandshakeIsRepeatedWithoutIt(t *testing.T) {
	t.Parallel()
	receiver, client := newTLSReceiver(t, 0, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.Extensions, preSharedKey) {
			return nil, errors.New("no")
		}
		return nil, nil
	}})
	for range 3 {
		post(t, client, receiver.address())
	}
	if n := receiver.offered.Load(); n != 2 {
		t.Errorf("%d sessions were offered, want 2", n)
	}
}

// The TLS state of a connection or session holds the receiver's certificates, stapled responses and
// tickets.
func TestClient_ReceiverWithLargeTLSState_ConnectionIsNotKept(t *testing.T) {
	t.Parallel()
	junk := bytes.Repeat([]byte("x"), 2*maxSession)
	staple := func(r *tlsReceiver) { r.TLS.Certificates[0].OCSPStaple = junk[:60_000] }
	for name, test := range map[string]struct {
		change func(*tlsReceiver)
		conns  int64
	}{
		"small state":   {func(*tlsReceiver) {}, 1},
		"a long staple": {staple, 3},
		"a long ticket": {func(r *tlsReceiver) {
			r.TLS.WrapSession = func(tls.ConnectionState, *tls.SessionState) ([]byte, error) { return junk[:60_000], nil }
		}, 3},
		"many certificates": {func(r *tlsReceiver) {
			own := &r.TLS.Certificates[0]
			for range 2 * maxSession / len(own.Certificate[0]) {
				own.Certificate = append(own.Certificate, own.Certificate[0])
			}
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver, client := newTLSReceiver(t, 8, &tls.Config{})
			test.change(receiver)
			for range 3 {
				post(t, client, receiver.address())
			}
			if n := receiver.conns.Load(); n != test.conns {
				t.Errorf("%d connections, want %d", n, test.conns)
			}
		})
	}
}

// An answer on an idle connection shows that this host can reach the network.
func TestClient_AnswerOnIdleConnectionAfterFailure_ReceiverIsToBlame(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		client, _ := newInMemory(8)
		defer client.CloseIdle()
		through := client.dial
		down, standing := false, Proven
		client.dial = func(ctx context.Context, by Caller, address string) (net.Conn, error) {
			if down {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ENETUNREACH}
			}
			return through(ctx, by, address)
		}
		try := func(owner string) Response {
			target, err := NewTarget("https://"+owner+".example.com/", nil)
			if err != nil {
				t.Fatal(err)
			}
			return client.Post(new(Canceler), Request{Target: target, Owner: owner, Standing: standing, Deadline: time.Now().Add(time.Minute)})
		}
		if got := try("kept"); got.Status != http.StatusNoContent {
			t.Fatalf("first request: got %+v, want status 204", got)
		}
		down = true
		for _, test := range []struct {
			answers  bool
			standing Standing
			want     Response
		}{
			{true, Proven, Response{Failure: errConnect, Fault: Theirs}},
			{false, Untried, Response{Failure: errConnect, Fault: Theirs}}, // untried receivers are no evidence
			{false, Proven, Response{Failure: errOffline, Fault: Ours}},
		} {
			answers := test.answers
			standing = test.standing
			var group sync.WaitGroup
			for i := range 10 {
				group.Go(func() {
					got, want := try(fmt.Sprintf("owner%d-%d", test.standing, i)), test.want
					if got.Failure != want.Failure || got.Fault != want.Fault {
						t.Errorf("standing %d, another receiver answers %v: got %v, fault %d; want %v, fault %d", test.standing, answers, got.Failure, got.Fault, want.Failure, want.Fault)
					}
				})
			}
			time.Sleep(time.Second)
			if answers {
				if got := try("kept"); got.Status != http.StatusNoContent {
					t.Errorf("request on an idle connection: got %+v, want status 204", got)
				}
			}
			group.Wait()
		}
	})
}

// If many connections are in use, for example by one customer's receivers that hang, the client
// closes idle connections before the process runs out of descriptors, because the host needs some
// for its own connections.
func TestClient_ManyConnectionsInUse_ClosesIdleConnections(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		const kept, hanging, most = 100, 100, 150
		client, _ := newInMemory(kept)
		client.pool.maxOpen = most
		defer client.CloseIdle()
		var open atomic.Int64
		through := client.dial
		client.dial = func(ctx context.Context, by Caller, address string) (net.Conn, error) {
			open.Add(1)
			if strings.HasPrefix(address, "hangs") {
				<-ctx.Done()
				open.Add(-1)
				return nil, ctx.Err()
			}
			conn, err := through(ctx, by, address)
			return &descriptor{Conn: conn, open: &open}, err
		}
		for i := range kept {
			post(t, client, fmt.Sprint("kept-", i, ".example.com"))
		}
		var group sync.WaitGroup
		for i := range hanging {
			group.Go(func() { tryPost(t, client, fmt.Sprint("hangs-", i, ".example.com")) })
		}
		time.Sleep(time.Second)
		if n := open.Load(); n != most {
			t.Errorf("%d connections are open, want %d: %d hanging and the rest idle", n, most, hanging)
		}
		group.Wait()
		for i := range kept {
			post(t, client, fmt.Sprint("kept-", i, ".example.com"))
		}
		if n := open.Load(); n != kept {
			t.Errorf("%d connections are open afterwards, want %d idle ones", n, kept)
		}
	})
}
