package postgres_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store/postgres/internal/cluster"
)

// TestExample runs examples/postgres and stops one of its nodes, which clients must not notice.
func TestExample(t *testing.T) {
	t.Parallel()
	c, err := cluster.Start("fsync=off")
	if err != nil {
		skip(t, err)
	}
	defer c.Stop()
	program := filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("go", "build", "-C", "../../examples/postgres", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	ctx, stop := context.WithCancel(t.Context())
	example := exec.CommandContext(ctx, program, "-listen", address)
	example.Env = append(os.Environ(), "DATABASE_URL="+c.DSN("postgres"))
	example.Cancel = func() error { return example.Process.Signal(os.Interrupt) }
	out, err := example.StdoutPipe()
	if err == nil {
		err = example.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop()
		_ = example.Wait()
	}()

	token, pids, nodes := "", []int{}, []string{}
	lines := bufio.NewScanner(out)
	for (token == "" || len(pids) < 2) && lines.Scan() {
		if found := regexp.MustCompile(`Api-Key: (\S+)"`).FindStringSubmatch(lines.Text()); found != nil {
			token = found[1]
		}
		if found := regexp.MustCompile(`node (\S+) has the process id (\d+)`).FindStringSubmatch(lines.Text()); found != nil {
			n, _ := strconv.Atoi(found[2])
			pids, nodes = append(pids, n), append(nodes, found[1])
		}
	}
	call := func(method, path string) int {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Api-Key", token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	for end := time.Now().Add(20 * time.Second); call("GET", "/v2/environments") != 200; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the service does not answer")
		}
	}
	for _, node := range nodes { // wait for both, so that one can stop
		awaitNode(t, node, true)
	}
	for i := range 40 {
		if i == 10 && len(pids) > 0 {
			node, err := os.FindProcess(pids[0])
			if err == nil {
				err = node.Kill()
			}
			if err != nil {
				t.Fatal(err)
			}
			awaitNode(t, nodes[0], false) // the node finishes its running requests; more is not guaranteed
		}
		if status := call("GET", "/v2/environments"); status != 200 {
			t.Errorf("request %d: status %d, want 200", i, status)
		}
		if status := call("POST", "/v2/files/file_"+strconv.Itoa(i)); status != 204 {
			t.Errorf("request %d to store a file: status %d, want 204", i, status)
		}
	}
}

// awaitNode waits until a node accepts connections or, if there is false, until it refuses them.
func awaitNode(t *testing.T, address string, there bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) == there {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("node %s answers: %v, want %v", address, err == nil, there)
		}
	}
}
