package storageapi_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
)

// TestFullDisk creates keys over HTTP in a process whose file may not grow beyond
// a limit, as on a full disk, and then opens the file without the limit: every key
// that was answered 201 is there, and none that was answered 500.
func TestFullDisk(t *testing.T) {
	const child = "STORAGEAPI_TEST_FULL_DISK"
	if path := os.Getenv(child); path != "" {
		fillDisk(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), "storage.db")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$")
	cmd.Env = append(os.Environ(), child+"="+path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	var acknowledged []string
	refused := 0
	for line := range strings.Lines(string(out)) {
		switch status, rest, _ := strings.Cut(strings.TrimSpace(line), " "); status {
		case "201":
			acknowledged = append(acknowledged, rest)
		case "500":
			refused++
			want := `{"error":{"code":"INTERNAL_ERROR","message":"Something went wrong on our side. Try again later."}}`
			if rest != want {
				t.Errorf("a full disk is answered %s", rest)
			}
		}
	}
	api, err := storageapi.NewHandler(storageapi.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	keys, err := api.Keys.List(t.Context(), "acct", apikeys.Page{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var stored []string
	for _, key := range keys {
		stored = append(stored, key.ID)
	}
	slices.Sort(stored)
	if diff := cmp.Diff(acknowledged, stored); diff != "" {
		t.Errorf("acknowledged and stored differ: %s", diff)
	}
	t.Logf("%d acknowledged, %d refused", len(acknowledged), refused)
	if refused == 0 || len(acknowledged) < 10 {
		t.Error("the disk was not filled: the test tests nothing")
	}
}

// fillDisk prints a line for each key it creates: the status, and the id or the
// body of the refusal.
func fillDisk(t *testing.T, path string) {
	api, err := storageapi.NewHandler(storageapi.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	key, token, err := api.Keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "first", Scopes: scopes.All()})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(http.StatusCreated, key.ID)
	signal.Ignore(syscall.SIGXFSZ) // a write beyond the limit fails instead
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 256 << 10, Max: 256 << 10}); err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"name":"%s","scopes":["files:read"]}`, strings.Repeat("x", 128))
	for refused := 0; refused < 5; {
		r := httptest.NewRequest(http.MethodPost, "/v2/api-keys", bytes.NewReader([]byte(body)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Api-Key", token.Reveal())
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		what := filepath.Base(w.Header().Get("Location"))
		if w.Code != http.StatusCreated {
			refused++
			what = w.Body.String()
		}
		fmt.Println(w.Code, what)
	}
}
