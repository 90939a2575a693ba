package bolt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
)

// BenchmarkVerifyWithWriter measures how much a writer slows down two goroutines that verify keys.
// The writer creates 1,000 keys a second; the verified keys are hot, or follow Zipf's law. Turns of
// 100 ms with and without the writer alternate.
//
// Figures are medians of the turns. "left" is the rate with the writer relative to the rate without
// it, with keys in memory. "left-file" is the same without cached keys (CacheKeys(0)). "left-map"
// is the same for a map of all keys, which the writer does not change: it shows how much the writer
// slows down any load, because it uses processor time and holds one of Go's processors in each
// sync. "left-bare" is the same for a bare View and Get, as in the floor of [BenchmarkVerify], in
// the file that is being written. "commits" are the commits per second in each case; keys that
// become due during a commit share the next commit. "alone" is the writer without verifiers: its
// share of both processors' time, and its commits per second. Figures that end in "-µs" are the
// processor time of one verification, without the writer and with it, less the time that the writer
// takes alone.
func BenchmarkVerifyWithWriter(b *testing.B) {
	count, draws := 1_000_000, 1<<22
	if testing.Short() {
		count, draws = 10_000, 1<<14
	}
	s, tokens := filled(b, count)
	file := copied(b, s)
	contenders := []struct {
		name   string
		verify func(token string) error
		writes *engine
	}{
		{"", verifier(b, s), s},
		{"-file", verifier(b, file), file},
		{"-map", verifier(b, mapOf(b, s)), s},
		{"-bare", func(token string) error { return lookUp(file.db, token) }, file},
	}
	for _, zipf := range []*rand.Zipf{nil, rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(count-1))} {
		// Draw so often that 350,000 different keys occur, most of them only once.
		name, drawn := "hot", make([]int32, draws)
		for i := range drawn {
			drawn[i] = rand.Int32N(1000)
			if zipf != nil {
				name, drawn[i] = "zipf", int32(zipf.Uint64())
			}
		}
		b.Run(name, func(b *testing.B) {
			figures := make(map[string][]float64)
			note := func(name string, figure float64) { figures[name] = append(figures[name], figure) }
			for _, at := range drawn { // brings frequently used keys into memory
				if err := contenders[0].verify(tokens[at]); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				alone := besideWriter(b, nil, nil, nil, s)
				note("alone-share", alone.cpu.Seconds()/verifyTurn.Seconds()/2)
				note("alone-commits", alone.commits/verifyTurn.Seconds())
				for _, c := range contenders {
					without, with := besideWriter(b, c.verify, tokens, drawn, nil), besideWriter(b, c.verify, tokens, drawn, c.writes)
					note("left"+c.name, with.verified/without.verified)
					note("commits"+c.name, with.commits/verifyTurn.Seconds())
					note("created"+c.name, with.created/verifyTurn.Seconds())
					note("without"+c.name+"-µs", without.cpu.Seconds()*1e6/without.verified)
					note("with"+c.name+"-µs", (with.cpu-alone.cpu).Seconds()*1e6/with.verified)
				}
			}
			b.ReportMetric(0, "ns/op")
			for name, list := range figures {
				slices.Sort(list)
				b.ReportMetric(list[len(list)/2], name)
			}
		})
	}
}

const verifyTurn = 100 * time.Millisecond

// A verifyCount counts the work done in a turn.
type verifyCount struct {
	verified, created, commits float64
	cpu                        time.Duration // processor time of the process
}

// besideWriter runs a turn. Unless verify is nil, two goroutines verify tokens. Unless s is nil,
// the turn also creates one key per millisecond in s.
func besideWriter(b *testing.B, verify func(token string) error, tokens []string, drawn []int32, s *engine) (n verifyCount) {
	var wg sync.WaitGroup
	var verified atomic.Int64
	cpu, start := processTime(b), time.Now()
	end := start.Add(verifyTurn)
	for range 2 {
		if verify == nil {
			break
		}
		at := rand.IntN(len(drawn))
		wg.Go(func() {
			n := int64(0)
			for ; n%64 > 0 || time.Now().Before(end); n++ {
				if err := verify(tokens[drawn[(at+int(n))%len(drawn)]]); err != nil {
					b.Error(err)
					return
				}
			}
			verified.Add(n)
		})
	}
	if s != nil {
		service, err := apikeys.New(s, apikeys.Config{MaxPerAccount: -1})
		if err != nil {
			b.Fatal(err)
		}
		create := func() {
			params := apikeys.CreateParams{Name: "benchmark", Scopes: scopes.Of(scopes.FilesRead)}
			if _, _, err := service.Create(b.Context(), fmt.Sprint("acct_", rand.IntN(1000)), params); err != nil {
				b.Error(err)
			}
		}
		before := commits(b, s)
		for now := range time.Tick(time.Millisecond) {
			for ; n.created < float64(min(now.Sub(start), verifyTurn)/time.Millisecond); n.created++ {
				wg.Go(create)
			}
			if now.Sub(start) >= verifyTurn {
				break
			}
		}
		wg.Wait()
		n.commits = commits(b, s) - before
	}
	wg.Wait()
	n.verified, n.cpu = float64(verified.Load()), processTime(b)-cpu
	return n
}

// commits returns the number of commits since the creation of the file.
func commits(b *testing.B, s *engine) float64 {
	tx, err := s.view(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	return float64(tx.ID())
}

// processTime returns the processor time that this process has used.
func processTime(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
