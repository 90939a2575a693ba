package httpapi_test

import (
	"bytes"
	"context"
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
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// TestFullDisk creates keys over HTTP in a process whose file cannot grow beyond a limit, as on a
// full disk. It then opens the file without the limit. Every key whose response was 201 must exist,
// and no key whose response was 503.
func TestFullDisk(t *testing.T) {
	path, out := apart(t, fillDisk)
	var acknowledged []string
	refused := 0
	for line := range strings.Lines(out) {
		switch status, rest, _ := strings.Cut(strings.TrimSpace(line), " "); status {
		case "201":
			acknowledged = append(acknowledged, rest)
		case "503":
			refused++
			if !strings.Contains(rest, `"code":"SERVICE_UNAVAILABLE"`) {
				t.Errorf("a full disk is answered %s", rest)
			}
		}
	}
	api, err := storageapi.NewHandler(storageapi.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	keys, err := api.Keys.List(t.Context(), "acct", apikeys.KeyQuery{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var stored []string
	for _, key := range keys.Keys {
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

// apart runs the test again in a separate process. There it calls do with the path of a file and
// does not return. In the original process it returns the path and the output of the other process.
func apart(t *testing.T, do func(t *testing.T, path string)) (path, out string) {
	t.Helper()
	const variable = "STORAGEAPI_TEST_FULL_DISK"
	if path := os.Getenv(variable); path != "" {
		signal.Ignore(syscall.SIGXFSZ) // so that writes beyond the limit return an error
		do(t, path)
		t.SkipNow()
	}
	path = filepath.Join(t.TempDir(), "storage.db")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"="+path)
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, printed)
	}
	return path, string(printed)
}

// limitFiles makes this process's writes beyond the given file size fail.
func limitFiles(t *testing.T, bytes uint64) {
	t.Helper()
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &r); err != nil {
		t.Fatal(err)
	}
	r.Cur = min(bytes, r.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &r); err != nil {
		t.Fatal(err)
	}
}

// fillDisk creates keys. For each it prints a line with the status and the ID, or the error body.
func fillDisk(t *testing.T, path string) {
	api, err := storageapi.NewHandler(storageapi.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	key, token, err := api.Keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "first", Scopes: scopes.Specified()})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(http.StatusCreated, key.ID)
	limitFiles(t, 256<<10)
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

// TestFullDiskDuringDelivery publishes until the disk is full, delivers while no result can be
// recorded, and then frees space. Afterwards every acknowledged event must be delivered once, and
// events that were refused must be accepted when published again.
func TestFullDiskDuringDelivery(t *testing.T) {
	path, out := apart(t, deliverOnFullDisk)
	api := newAPI(t, storageapi.Config{Path: path})
	delivered := 0
	for line := range strings.Lines(out) {
		id, ok := strings.CutPrefix(strings.TrimSpace(line), "delivered ")
		if !ok {
			continue
		}
		delivered++
		deliveries, err := api.Webhooks.EventDeliveries(t.Context(), alice, id)
		if err != nil || len(deliveries) != 1 || deliveries[0].State != webhooks.Delivered {
			t.Errorf("%s was delivered; the file has %v, %v", id, deliveries, err)
		}
	}
	t.Logf("%d delivered", delivered)
	if delivered < 20 {
		t.Error("hardly anything was delivered: the test tests nothing")
	}
}

func deliverOnFullDisk(t *testing.T, path string) {
	r := newReceiver(t)
	var log testlog.Book
	api := newAPI(t, storageapi.Config{Path: path, Webhooks: r.config(), Logger: log.Logger()})
	_, err := api.Webhooks.Create(t.Context(), alice, webhooks.CreateParams{
		URL: r.URL, Events: []webhooks.EventType{alerts.TypeFilesExpiring},
	})
	if err != nil {
		t.Fatal(err)
	}
	data := alerts.FilesExpiring{Files: []alerts.ExpiringFile{{ID: strings.Repeat("x", 8<<10), ExpiresAt: time.Now()}}}
	publish := func(id string) error {
		return api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: alice, Data: data})
	}

	var ids, refused []string
	limitFiles(t, 512<<10)
	for i := 0; len(refused) < 5; i++ {
		id := fmt.Sprint("event-", i)
		if publish(id) != nil {
			refused = append(refused, id)
		}
		ids = append(ids, id)
	}
	limitFiles(t, 8<<10) // too little for a page of data
	if publish("one-more") == nil {
		t.Error("published on a full disk")
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- api.Run(ctx) }()
	eventually(t, "a settlement fails", func() bool { return strings.Contains(log.String(), "step=settle") })
	if len(r.received) == 0 {
		t.Error("nothing was sent")
	}

	limitFiles(t, 1<<40)
	for _, id := range refused {
		if err := publish(id); err != nil {
			t.Errorf("with room again: %v", err)
		}
	}
	for _, id := range ids {
		eventually(t, id+" is delivered", func() bool {
			deliveries, err := api.Webhooks.EventDeliveries(t.Context(), alice, id)
			return err == nil && len(deliveries) == 1 && deliveries[0].State == webhooks.Delivered
		})
		fmt.Println("delivered", id)
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if n := len(r.received); n != len(ids) {
		t.Errorf("%d requests arrived for %d events", n, len(ids))
	}
}

// eventually waits until so returns true.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it is not so that %s", what)
		}
	}
}
