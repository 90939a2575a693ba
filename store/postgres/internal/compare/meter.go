//go:build unix

package main

import (
	"fmt"
	"io"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
)

// A meter measures the queues alternately.
type meter struct {
	server *cluster.Cluster
	queues []queue
	labels []string // in the order of their first measurement
	seen   map[key][]reading
	turn   int
}

// A key identifies a measurement of a queue.
type key struct{ label, queue string }

// A reading is the time per job of one run.
type reading struct {
	wall, server, node time.Duration
}

// measure lets each queue do the same n jobs. The queues take turns in going first.
func (m *meter) measure(label string, n int, do func(queue) error) error {
	if m.seen == nil {
		m.seen = make(map[key][]reading)
	}
	if !slices.Contains(m.labels, label) {
		m.labels = append(m.labels, label)
	}
	m.turn++
	for i := range m.queues {
		q := m.queues[(i+m.turn)%len(m.queues)]
		begun, server, node := time.Now(), m.server.CPU(), ownCPU()
		if err := do(q); err != nil {
			return fmt.Errorf("%s, %s: %w", label, q.name(), err)
		}
		each := time.Duration(n)
		k := key{label, q.name()}
		m.seen[k] = append(m.seen[k], reading{time.Since(begun) / each, (m.server.CPU() - server) / each, (ownCPU() - node) / each})
	}
	return nil
}

// print prints the medians.
func (m *meter) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\t\tjobs/s\tfrom\tto\tserver µs/job\tnode µs/job\truns\t")
	for _, label := range m.labels {
		for _, q := range m.queues {
			var wall, server, node []time.Duration
			for _, r := range m.seen[key{label, q.name()}] {
				wall, server, node = append(wall, r.wall), append(server, r.server), append(node, r.node)
			}
			slices.Sort(wall)
			slices.Sort(server)
			slices.Sort(node)
			runs := len(wall)
			fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t\n", label, q.name(),
				1/wall[runs/2].Seconds(), 1/wall[runs-1].Seconds(), 1/wall[0].Seconds(), micros(server[runs/2]), micros(node[runs/2]), runs)
		}
	}
	return w.Flush()
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// ownCPU returns the processor time that this process has used.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
