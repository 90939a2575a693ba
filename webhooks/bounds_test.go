package webhooks_test

import (
	"compress/gzip"
	"context"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// floods are endless responses, which would exhaust the memory if there were no limit.
var floods = map[string]func(net.Conn){
	"header line":  func(c net.Conn) { say("HTTP/1.1 200 OK\r\nX-A: ")(c); pour(c, strings.Repeat("x", 1<<14)) },
	"header":       func(c net.Conn) { say("HTTP/1.1 200 OK\r\n")(c); pour(c, strings.Repeat("X-A: x\r\n", 1<<11)) },
	"status line":  func(c net.Conn) { say("HTTP/1.1 200 ")(c); pour(c, strings.Repeat("x", 1<<14)) },
	"100 Continue": func(c net.Conn) { pour(c, strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 1<<9)) },
	"103 hints":    func(c net.Conn) { pour(c, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 1<<9)) },
	"body":         func(c net.Conn) { say("HTTP/1.1 500 No\r\n\r\n")(c); pour(c, strings.Repeat("x", 1<<14)) },
	"chunks": func(c net.Conn) {
		say("HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n")(c)
		pour(c, strings.Repeat("1\r\nx\r\n", 1<<11))
	},
	"chunk header": func(c net.Conn) {
		say("HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n1;")(c)
		pour(c, strings.Repeat("x", 1<<14))
	},
	"trailer": func(c net.Conn) {
		say("HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")(c)
		pour(c, strings.Repeat("X-A: x\r\n", 1<<11))
	},
	"gzip bomb": func(c net.Conn) { say("HTTP/1.1 500 No\r\nContent-Encoding: gzip\r\n\r\n")(c); pour(c, bomb()) },
	"protocol": func(c net.Conn) {
		say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")(c)
		pour(c, strings.Repeat("x", 1<<14))
	},
	"secrets": func(c net.Conn) {
		say("HTTP/1.1 500 No\r\n\r\n")(c)
		pour(c, strings.Repeat(floodSecret.Reveal(), 1<<8))
	},
	"nothing": func(net.Conn) {},
}

var floodSecret = signing.NewSecret()

// bomb returns 16 MiB of data, compressed to 16 KiB.
var bomb = sync.OnceValue(func() string {
	var packed strings.Builder
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(make([]byte, 16<<20))
	_ = w.Close()
	return packed.String()
})

// flooded returns a function that makes an attempt at a receiver that responds with respond.
func flooded(tb testing.TB, respond func(net.Conn)) func(context.Context) webhooks.Attempt {
	receiver := newRawReceiver(tb, respond)
	service := newService(tb, memory.New(), webhooks.Config{Outbound: webhooks.Outbound{AllowNetworks: loopback, RootCAs: trusted().pool(), Timeout: unhurried}})
	task := webhooks.Task{
		Event:   mustSeal(tb, webhooks.Event{ID: "evt_1", Account: account, Data: lowBalance}),
		Webhook: &webhooks.Webhook{ID: "wh_1", URL: receiver.url("127.0.0.1"), Secret: floodSecret}, Attempt: 1,
	}
	return func(ctx context.Context) webhooks.Attempt { return service.Attempt(ctx, &task) }
}

// An attempt allocates no more memory than a TLS connection and a bounded response need, for any
// amount of received data. The figures include the receiver's side.
func TestAttempt_AnyResponse_AllocatesLittle(t *testing.T) {
	const most, attempts = 4 << 20, 8
	for name, respond := range floods {
		t.Run(name, func(t *testing.T) {
			try := flooded(t, respond)
			try(t.Context())
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range attempts {
				if got := try(t.Context()); got.Error == "" || got.Class == webhooks.ClassTimeout || got.Duration > unhurried/2 {
					t.Errorf("%+v", got)
				}
			}
			runtime.ReadMemStats(&after)
			if each := (after.TotalAlloc - before.TotalAlloc) / attempts; each > most {
				t.Errorf("an attempt allocates %d bytes", each)
			}
		})
	}
}

func BenchmarkFlood(b *testing.B) {
	for name, respond := range floods {
		b.Run(name, func(b *testing.B) {
			try := flooded(b, respond)
			try(b.Context())
			b.ReportAllocs()
			for b.Loop() {
				try(b.Context())
			}
		})
	}
}

// delays are responses that call told and then never end.
var delays = map[string]func(conn net.Conn, told func()){
	"no response": func(c net.Conn, told func()) { told(); hang(c) },
	"half a header": func(c net.Conn, told func()) {
		say("HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("x", 12<<10))(c)
		told()
		hang(c)
	},
	"half a body": func(c net.Conn, told func()) {
		say("HTTP/1.1 500 No\r\nContent-Length: 4096\r\n\r\n" + strings.Repeat("x", 4000))(c)
		told()
		hang(c)
	},
}

// inFlight returns the memory that one attempt in flight takes, including the receiver's side. It
// is the mean of many concurrent attempts.
func inFlight(tb testing.TB, respond func(net.Conn, func())) uint64 {
	const attempts = 100
	var reached sync.WaitGroup
	reached.Add(attempts)
	try := flooded(tb, func(c net.Conn) { respond(c, reached.Done) })
	ctx, cancel := context.WithCancel(tb.Context())
	before := held()
	var ended sync.WaitGroup
	for range attempts {
		ended.Go(func() { try(ctx) })
	}
	reached.Wait()
	each := (held() - before) / attempts
	cancel()
	ended.Wait()
	return each
}

// held returns the memory in use.
func held() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}

func TestAttempt_InFlight_HoldsLittleMemory(t *testing.T) {
	for name, respond := range delays {
		t.Run(name, func(t *testing.T) {
			if each := inFlight(t, respond); each > 256<<10 {
				t.Errorf("an attempt holds %d bytes", each)
			}
		})
	}
}

func BenchmarkHang(b *testing.B) {
	for name, respond := range delays {
		b.Run(name, func(b *testing.B) {
			each := uint64(0)
			for b.Loop() {
				each = inFlight(b, respond)
			}
			b.ReportMetric(float64(each), "B/attempt")
		})
	}
}
