package simulation_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seeds    = flag.Int("seeds", 0, "how many seeds each test runs; a fifth of them on disk; 0: a few")
	theSeed  = flag.Uint64("seed", 0, "run this seed only")
	duration = flag.Duration("for", 0, "run ever new seeds for so long")
)

// slowdown is the approximate factor by which the race detector slows a seed down.
var slowdown = 1

// wanted returns the number of seeds to run. In CI, 40 run in memory and 13 on disk.
func wanted() int { return cmp.Or(*seeds, max(2, 8/slowdown)) }

// TestMemory runs the simulation on the memory store, which outlives its hosts.
func TestMemory(t *testing.T) { simulate(t, false, wanted()) }

// TestBolt runs the simulation on a file, whose disk fails at times.
func TestBolt(t *testing.T) { simulate(t, true, max(1, wanted()/5)) }

// simulate runs n seeds, one per processor at a time, and prints how many times each method met
// each fault.
func simulate(t *testing.T, onDisk bool, n int) {
	if t.Name() == "TestBolt" && runtime.GOOS != "linux" {
		t.Log("the disk fails on Linux only")
	}
	first, until := uint64(1), time.Time{}
	switch {
	case *theSeed > 0:
		first, n = *theSeed, 1
	case *duration > 0:
		first, n, until = uint64(time.Now().Unix())<<20, 1<<30, time.Now().Add(*duration)
	}
	met, next := new(tally), atomic.Int64{}
	t.Run("seeds", func(t *testing.T) {
		for i := range min(n, runtime.GOMAXPROCS(0)) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for {
					seed := next.Add(1) - 1
					if seed >= int64(n) || !until.IsZero() && time.Now().After(until) {
						return
					}
					runSeed(t, first+uint64(seed), onDisk, met)
				}
			})
		}
	})
	if unmet := met.unmet(); n >= 40 && len(unmet) > 0 {
		t.Errorf("no fault met %v", unmet)
	}
	fmt.Printf("%s: %s\n%s\n\n", t.Name(), met, &explained)
}

// minOps is the minimum number of operations of a seed.
const minOps = 200

// runSeed runs one seed, and prints its story if a rule was broken.
func runSeed(t *testing.T, seed uint64, onDisk bool, met *tally) {
	dir := ""
	if onDisk {
		dir = directory(t)
		defer os.RemoveAll(dir)
	}
	w := newWorld(seed, dir, met)
	story := w.run(t)
	if n := w.ops.Load(); story == "" && n < minOps {
		t.Errorf("seed %d has %d operations only", seed, n)
	}
	if story != "" {
		test := "TestMemory"
		if onDisk {
			test = "TestBolt"
		}
		t.Errorf("seed %d:\n%s\nagain: go test ./internal/simulation -run %s -seed %d -count 20", seed, story, test, seed)
	}
}

// directory returns a directory for a file, in memory if possible. Other tests cover syncs to a
// real disk.
func directory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "simulation")
	if err != nil {
		dir, err = os.MkdirTemp("", "simulation")
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
