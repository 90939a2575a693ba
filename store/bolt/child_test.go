package bolt_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/testdir"
)

// roleVariable is the environment variable that selects a role for the test binary. Tests that kill
// a process or limit its resources run the test binary as a child with a role.
const roleVariable = "STORAGEAPI_BOLT_TEST_ROLE"

var roles = map[string]func(path string) error{
	"publish": publishForEver,
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		testdir.InMemory() // no test needs a real disk: power losses are simulated
		os.Exit(m.Run())
	}
	if err := roles[role](os.Args[1]); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

// child returns a command that runs the test binary in the given role, for the file in dir.
func child(t *testing.T, role, dir string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], filepath.Join(dir, "storage.db"))
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

// killAfter starts the child, kills it the given time after its first line of output, and returns
// all lines that it has printed.
func killAfter(t *testing.T, cmd *exec.Cmd, delay time.Duration) []string {
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		if len(lines) == 0 {
			time.AfterFunc(delay, func() { _ = cmd.Process.Kill() })
		}
		lines = append(lines, strings.TrimSpace(scanner.Text()))
	}
	_ = cmd.Wait() // returns an error, since the process was killed
	return lines
}
