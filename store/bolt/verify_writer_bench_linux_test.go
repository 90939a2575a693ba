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

// BenchmarkVerifyBesideWriter measures what creating 1,000 keys a second takes from two goroutines that verify hot
// keys, or keys by Zipf's law: turns of 100 ms with the writer and without.
//
// Figures are medians of the turns. "left" is the rate with the writer against that without, with keys in memory;
// "left-file", without (CacheKeys(0)); "left-map", of those that verify on a map of all keys, which no creation touches:
// what is missing there the writer takes from any, by its own processor time and by holding a processor of Go's in each
// sync; "left-bare", of those that look keys up with a bare View and Get in the file that is written to, as the floor of
// [BenchmarkVerify]. "commits" are those a second of each: keys that fall due while there is one share the next. "alone"
// is the writer without any: its share of the time of both processors, and its commits a second. Those that end
// in "-µs" are processor time of one verification, without the writer and with it, less what the writer takes alone.
func BenchmarkVerifyBesideWriter(b *testing.B) {
	count := 1_000_000
	if testing.Short() {
		count = 10_000
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
		// As many that most of those that are rare are never asked for again: 350,000 keys of them.
		name, drawn := "hot", make([]int32, 1<<22)
		for i := range drawn {
			drawn[i] = rand.Int32N(1000)
			if zipf != nil {
				name, drawn[i] = "zipf", int32(zipf.Uint64())
			}
		}
		b.Run(name, func(b *testing.B) {
			figures := make(map[string][]float64)
			note := func(name string, figure float64) { figures[name] = append(figures[name], figure) }
			for _, at := range drawn { // what is asked for often is in memory
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

// A verifyCount is what was done in a turn.
type verifyCount struct {
	verified, created, commits float64
	cpu                        time.Duration // of the process
}

// besideWriter returns what two goroutines verify in a turn, unless verify is nil, while a key falls due to be created in the store
// each millisecond, unless that is nil.
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

// commits returns how many there were in the life of the file.
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
