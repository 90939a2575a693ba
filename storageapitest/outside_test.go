package storageapitest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A host's module must be able to use the kit in its tests, but not in a program.
func TestKit_AnotherModule_TestsOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs")
	}
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"go.mod": "module example.com/host\n\ngo 1.26.0\n\nrequire github.com/storageapi/storageapi v0.0.0\n\n" +
			"replace github.com/storageapi/storageapi => " + root + "\n",
		"go.sum":       string(sums),
		"host_test.go": outsideTest,
		"main.go":      outsideProgram,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(arguments ...string) (string, error) {
		command := exec.Command("go", arguments...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := command.CombinedOutput()
		return string(out), err
	}
	if out, err := run("test", "-count=1", "./..."); err != nil {
		t.Errorf("go test: %v\n%s", err, out)
	}
	out, err := run("run", ".")
	if err == nil || !strings.Contains(out, "storageapitest: this program is not a test") {
		t.Errorf("the program ended with %v\n%s", err, out)
	}
}

const outsideTest = `package main

import (
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/storageapitest"
)

func TestHost(t *testing.T) {
	storageapitest.Bubble(t, func(t *testing.T) {
		kit := storageapitest.New(t, storageapitest.Seed(7), storageapitest.Patience(100*time.Hour))
		receiver := kit.Subscribe(alerts.TypeBandwidthLimitReached)
		receiver.Script(storageapitest.Status(500).For(24 * time.Hour))
		if err := kit.API.Alerts.ReportBandwidth(t.Context(), kit.Account, 2, 1, "2000-01"); err != nil {
			t.Fatal(err)
		}
		if event := receiver.Next(); event.Type != alerts.TypeBandwidthLimitReached {
			t.Errorf("got %s", event.Type)
		}
		key := kit.Key(scopes.FilesRead)
		kit.Revoke(key)
		if got := key.Do(kit.API, "GET", "/v2/api-keys", ""); got.StatusCode != 401 {
			t.Errorf("a revoked key is answered %s", got.Status)
		}
	})
}
`

const outsideProgram = `package main

import (
	"testing"

	"github.com/storageapi/storageapi/storageapitest"
)

func main() {
	var t struct{ testing.TB }
	storageapitest.New(t)
}
`
