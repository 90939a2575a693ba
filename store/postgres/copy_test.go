package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/store/transfer"
)

// copierEnv, if set, names a file that a process of the test binary copies. The other variables
// have the connection string of the target, the page size, and the position to continue from.
const copierEnv, copierTo, copierPage, copierAfter = "STORAGEAPI_TEST_COPY", "STORAGEAPI_TEST_COPY_TO", "STORAGEAPI_TEST_COPY_PAGE", "STORAGEAPI_TEST_COPY_AFTER"

// runCopier copies a file to a database, prints a line after each page, and marks the file as left.
func runCopier(file string) {
	ctx := context.Background()
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "copier:", err)
			os.Exit(1)
		}
	}
	source, err := bolt.Open(file, bolt.Wait(10*time.Second), bolt.Left())
	check(err)
	target, err := postgres.Open(ctx, os.Getenv(copierTo))
	check(err)
	size, err := strconv.Atoi(os.Getenv(copierPage))
	check(err)
	_, err = transfer.Copy(ctx, target, source, transfer.CopyOptions{PageSize: size, After: os.Getenv(copierAfter), LeftFor: "a database", Progress: func(at transfer.Progress) {
		fmt.Println("page", at.Comparing, at.Position)
	}})
	check(err)
	check(errors.Join(target.Close(), source.Close()))
	fmt.Println("done")
}

var copyKills = flag.Int("kills", 10, "how often TestCopy_Killed_CopiesEachRecordOnce kills the process that copies")

// A process that copies a file to a database is killed repeatedly, at any step. The next process
// continues from the last known position or starts from the beginning. In the end each record was
// copied once, including the previous values of keys and their expiry.
func TestCopy_Killed_CopiesEachRecordOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts many processes")
	}
	server, err := cluster.Start()
	if err != nil {
		skip(t, err)
	}
	defer server.Stop()
	file := filepath.Join(t.TempDir(), "storage.db")
	source, err := bolt.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	l := load{accounts: 5, keys: 300, settled: 300, pending: 300}
	fillStore(t, source, l)
	want, err := transfer.Summarize(t.Context(), source, "")
	if err := errors.Join(err, source.Close()); err != nil {
		t.Fatal(err)
	}
	c := &copiers{t: t, file: file, dsn: server.DSN("postgres"), page: max(1, 900/max(1, *copyKills))}
	killed := map[string]int{}
	position := ""
	for range *copyKills {
		if rand.N(2) == 0 {
			position = ""
		}
		var step string
		if step, position = c.kill(position, rand.N(2*900/c.page)); step == "done" {
			position = "" // the process was killed too late
		}
		killed[step]++
	}
	if step, _ := c.kill("", -1); step != "done" {
		t.Fatalf("the last copy ended after %q", step)
	}
	t.Logf("killed in %v", killed)
	if _, err := bolt.Open(file); !errors.Is(err, bolt.ErrLeft) {
		t.Errorf("Open of the file = %v, want ErrLeft", err)
	}
	target, err := postgres.Open(t.Context(), c.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = target.Close() }()
	got, err := transfer.Summarize(t.Context(), target, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := want.Compare(got); err != nil {
		t.Error(err)
	}
	checkLoad(t, target, l)
}

// copiers starts processes that copy the same file to the same database.
type copiers struct {
	t         *testing.T
	file, dsn string
	page      int
}

// kill starts a process and kills it after the given number of pages, or never if pages is
// negative. It returns the step that the process was in and the last position that it printed.
func (c *copiers) kill(after string, pages int) (step, position string) {
	c.t.Helper()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), copierEnv+"="+c.file, copierTo+"="+c.dsn, copierPage+"="+strconv.Itoa(c.page), copierAfter+"="+after)
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	step, position = "start", after
	lines := bufio.NewScanner(out)
	for ; pages != 0 && lines.Scan(); pages-- {
		var comparing bool
		var at string
		if lines.Text() == "done" {
			step = "done"
		} else if _, _ = fmt.Sscanln(lines.Text(), new(string), &comparing, &at); comparing {
			step = "compare"
		} else {
			step, position = "copy", at
		}
	}
	if pages == 0 {
		time.Sleep(rand.N(20 * time.Millisecond)) // so that the next step has begun
		_ = process.Process.Kill()
	}
	_ = process.Wait()
	return step, position
}

// checkLoad checks that a store has exactly one copy of the records that fillStore added to another
// store. The store must find each key by its current and its previous hash, and a claim must return
// exactly the pending deliveries.
func checkLoad(t *testing.T, s *postgres.Store, l load) {
	t.Helper()
	for i := range l.keys {
		key, err := s.KeyByHash(t.Context(), loadHash(i))
		if err != nil || key.Hash != loadHash(i) {
			t.Fatalf("key %d: %v", i, err)
		}
		if i%10 > 0 {
			continue
		}
		previous, err := s.KeyByHash(t.Context(), loadPrevious(i))
		if err != nil || previous.ID != key.ID || !previous.PreviousExpiresAt.After(time.Now()) {
			t.Fatalf("key %d by its previous value: %+v, %v", i, previous, err)
		}
	}
	claimed := make(map[string]int)
	for {
		tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(tasks) == 0 {
			break
		}
		for _, task := range tasks {
			claimed[task.Event.ID]++
		}
	}
	for i := range l.settled + l.pending {
		want := 0
		if i >= l.settled {
			want = 1
		}
		if id := loadEvent(i); claimed[id] != want {
			t.Errorf("%s was claimed %d times, want %d", id, claimed[id], want)
		}
	}
}
