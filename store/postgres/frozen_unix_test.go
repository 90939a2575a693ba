//go:build unix

package postgres_test

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store/postgres"
)

// The shards of a suspended process move to another node within 10 s. After the process resumes, it
// must not claim before it has a new term.
func TestNode_Suspended_LosesItsShards(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	p, c := migrated(t, "fsync=off")
	a := shardNodesOf(postgres.DefaultSchema, p)
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), ownerEnv+"="+c.DSN("postgres"))
	process.Stderr = os.Stderr
	if _, err := process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}()
	lines := bufio.NewScanner(stdout)
	next := func() int64 {
		t.Helper()
		if !lines.Scan() {
			t.Fatal("the process has ended")
		}
		node, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	frozen := next()
	other := a.on(t, a.open(t), 6*time.Second)
	other.join()
	eventually(t, "both have their share", func() bool { return len(other.served()) == shards/2 && len(a.owned(t)[frozen]) == shards/2 })
	if err := process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	took := a.awaitBalance(t, other)
	t.Log("moved after", took)
	if took > 10*time.Second {
		t.Errorf("its shards moved after %v", took)
	}
	if err := process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	again := next()
	if again == 0 { // the process checks its term every 10 ms, and may have joined again by then
		again = next()
	}
	if again == frozen || again>>12 != frozen>>12 {
		t.Errorf("the process joined again as %x, and was %x", again, frozen)
	}
	eventually(t, "both have their share again", func() bool { return len(other.served()) == shards/2 && len(a.owned(t)[again]) == shards/2 })
}
