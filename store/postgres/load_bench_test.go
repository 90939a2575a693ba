package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	benchPending  = flag.Int("pending", 1_000_000, "deliveries that are pending in BenchmarkLoading")
	benchAccounts = flag.Int("accounts", 1, "accounts that they are of, with a webhook each")
	benchTimeout  = flag.Duration("timeout", 2*time.Second, "statement_timeout in BenchmarkLoading")
)

// BenchmarkLoading starts a node on a database with a backlog of one account. It measures the time
// until the node claims two events of another account, which were published before and after the
// start, and the time until all deliveries are loaded. It also reports the memory per delivery:
// bytes in use, and bytes that the process got from the system.
//
//	go test -run '^$' -bench Loading -benchtime 1x -pending 14000000 -accounts 1
//	go test -run '^$' -bench Loading -benchtime 1x -pending 14000000 -accounts 50000
func BenchmarkLoading(b *testing.B) {
	p, _ := durable(b)
	s := openOn(b, p)
	endpoints(b, s, *benchAccounts)
	accounts, _ := accountsIn(b, s, 1)
	other := accounts[0]
	publishTo(b, s, other, "before")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	if err := pgx.BeginFunc(context.Background(), p, func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), `
			insert into storageapi.pending (webhook, event, shard, recovered, due, attempts, before)
			select no, i::bigint * 4096, shard, false, now() + interval '1 hour', 1, 0
			from generate_series(1, $1::integer) i join (
				select no, storageapi.shard_of(account) as shard, row_number() over (order by no) - 1 as place
				from storageapi.webhooks where account <> $2) w on w.place = i % $3::integer`, *benchPending, other, *benchAccounts)
		return err
	}); err != nil {
		b.Fatal(err)
	}
	if _, err := p.Exec(context.Background(), `vacuum analyze storageapi.pending`); err != nil {
		b.Fatal(err)
	}
	config := p.Config()
	config.ConnConfig.RuntimeParams["statement_timeout"] = strconv.FormatInt(benchTimeout.Milliseconds(), 10)
	for b.Loop() {
		limited, err := pgxpool.NewWithConfig(b.Context(), config)
		if err != nil {
			b.Fatal(err)
		}
		used, resident := inUse(), residentBytes()
		begun := time.Now()
		s := openOn(b, limited)
		claimsUntil(b, s, "before")
		b.ReportMetric(time.Since(begun).Seconds(), "s/before")
		published := time.Now()
		id := fmt.Sprint("after ", published)
		publishTo(b, s, other, id)
		claimsUntil(b, s, id)
		b.ReportMetric(time.Since(published).Seconds(), "s/after")
		for s.Loading() > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		b.ReportMetric(time.Since(begun).Seconds(), "s/all")
		b.ReportMetric(float64(residentBytes()-resident)/float64(*benchPending), "resident-B/delivery")
		b.ReportMetric(float64(inUse()-used)/float64(*benchPending), "B/delivery")
		_ = s.Close()
		limited.Close()
	}
}

// inUse returns the number of heap bytes in use.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// residentBytes returns the resident memory of the process, or 0 if the system does not report it.
func residentBytes() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.ParseInt(strings.Fields(kib)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}
