package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/storageapi/storageapi/cli"
)

// A proxy can answer 404 for a body while the service restarts, without the error code of the API.
func TestListen_ProxyAnswers404_LosesNoEvent(t *testing.T) {
	t.Setenv("KEY", "k")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var failed atomic.Bool
	var posts atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/body") && failed.CompareAndSwap(false, true):
			http.Error(w, "default backend - 404", http.StatusNotFound)
		case strings.HasSuffix(r.URL.Path, "/body"):
			fmt.Fprint(w, `{}`)
		case posts.Load() > 0:
			<-r.Context().Done()
		default:
			fmt.Fprint(w, `{"data":[{"id":"evt_1","type":"balance.low","hasBody":true}],"nextCursor":"c","hasMore":false}`)
		}
	}))
	defer api.Close()
	to := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { posts.Add(1); cancel() }))
	defer to.Close()
	var out bytes.Buffer
	args := []string{"listen", "-api", api.URL, "-to", to.URL, "-cursor", filepath.Join(t.TempDir(), "cursor"), "-from=beginning"}
	if status := cli.Run(ctx, args, cli.Config{Stdout: &out, Stderr: &out}); status != 1 {
		t.Errorf("listen ended with %d after the proxy's 404, want 1:\n%s", status, &out)
	}
	args[len(args)-1] = "-from=cursor"
	cli.Run(ctx, args, cli.Config{Stdout: &out, Stderr: &out})
	if n := posts.Load(); n != 1 {
		t.Errorf("the event was posted %d times, want once:\n%s", n, &out)
	}
}
