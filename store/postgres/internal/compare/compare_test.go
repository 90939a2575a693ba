//go:build unix

package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
)

// The comparison completes, and each queue processes all its events or jobs.
func TestCompare(t *testing.T) {
	p := plan{n: 2 * many, webhooks: 100, rounds: 1, nodes: []int{2}, slots: []int{100}}
	var out strings.Builder
	err := p.run(t.Context(), &out)
	if errors.Is(err, cluster.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(out.String(), "\n"); rows != 1+2*3 {
		t.Errorf("%d rows were printed, want 7:\n%s", rows, out.String())
	}
}
