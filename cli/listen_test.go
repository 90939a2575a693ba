package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/cli"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// TestMain runs a command, if a test started this program to kill it.
func TestMain(m *testing.M) {
	if args := os.Getenv("CLI_ARGS"); args != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		os.Exit(cli.Run(ctx, strings.Split(args, "\n"), cli.Config{})) //nolint:gocritic // the process ends
	}
	os.Exit(m.Run())
}

// A listenTest is a service with a key in $KEY, and a local receiver.
type listenTest struct {
	*testing.T
	api    *storageapi.Handler
	server *httptest.Server
	args   []string // the arguments of listen

	secrets   []signing.Secret       // the secrets of all runs
	verifiers chan *signing.Verifier // receives a Verifier once the current run has printed its secret

	mu       sync.Mutex
	received []string // the IDs of accepted events, in order
	failures int      // number of next posts to refuse
	arrived  chan struct{}
	waits    atomic.Int32 // requests that wait for events
}

func newListenTest(t *testing.T) *listenTest {
	l := &listenTest{T: t, api: newAPI(t, http.HandlerFunc(nothing)), arrived: make(chan struct{}, 1000), verifiers: make(chan *signing.Verifier, 1)}
	_, token, err := l.api.Keys.Create(t.Context(), "acct_1", apikeys.CreateParams{Name: "listen", Scopes: scopes.Specified()})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KEY", token.Reveal())
	if _, err := l.api.Webhooks.Create(t.Context(), "acct_1", webhooks.CreateParams{URL: "https://example.com/", Events: alerts.EventTypes()}); err != nil {
		t.Fatal(err)
	}
	l.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("wait") == "20" {
			l.waits.Add(1)
		}
		l.api.ServeHTTP(w, r)
	}))
	t.Cleanup(l.server.Close)
	receiver := httptest.NewServer(l)
	t.Cleanup(receiver.Close)
	l.args = []string{"listen", "-api", l.server.URL + "/v2", "-to", receiver.URL + "/hook", "-cursor", filepath.Join(t.TempDir(), "cursor")}
	return l
}

// ServeHTTP is the receiver. It verifies both signatures.
func (l *listenTest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	verifier := <-l.verifiers
	l.verifiers <- verifier
	if err == nil {
		err = verifier.Verify(r.Header, body)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id := r.Header.Get("Webhook-Id")
	if err != nil || r.URL.Path != "/hook" || !bytes.Contains(body, []byte(id)) {
		l.Errorf("got %s %s: %v", r.URL, body, err)
	}
	if l.failures > 0 {
		l.failures--
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	l.received = append(l.received, id)
	l.arrived <- struct{}{}
}

// publish publishes n events and returns their IDs.
func (l *listenTest) publish(n int) (ids []string) {
	l.Helper()
	for range n {
		event := webhooks.Event{ID: l.api.Webhooks.NewEventID(), Account: "acct_1", Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
		if err := l.api.Webhooks.Publish(l.Context(), event); err != nil {
			l.Fatal(err)
		}
		ids = append(ids, event.ID)
	}
	return ids
}

// wait waits until n more events were received.
func (l *listenTest) wait(n int) {
	l.Helper()
	for range n {
		select {
		case <-l.arrived:
		case <-time.After(20 * time.Second):
			l.Fatal("no event arrived")
		}
	}
}

// trust makes the receiver verify with the secret in the first line of the command's output.
func (l *listenTest) trust(line string) {
	l.Helper()
	text, found := strings.CutPrefix(strings.TrimSpace(line), "export WEBHOOK_SECRET=")
	secret, err := signing.ParseSecret(text)
	if err != nil || !found {
		l.Fatalf("got first line %q, %v", line, err)
	}
	l.secrets = append(l.secrets, secret) // a post of a killed run may still be on its way
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: l.secrets})
	if err != nil {
		l.Fatal(err)
	}
	l.verifiers <- verifier
}

// distrust makes the receiver wait until the next run has printed its secret.
func (l *listenTest) distrust() {
	if len(l.secrets) > 0 {
		<-l.verifiers
	}
}

// start runs the command until end is called, which returns the rest of the output.
func (l *listenTest) start(more ...string) (end func() string) {
	l.Helper()
	l.distrust()
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(l.Context())
	status := make(chan int, 1)
	go func() {
		status <- cli.Run(ctx, append(l.args, more...), cli.Config{Stdout: writer, Stderr: writer})
		_ = writer.Close()
	}()
	lines := bufio.NewReader(reader)
	line, _ := lines.ReadString('\n')
	l.trust(line)
	rest := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(lines)
		rest <- string(text)
	}()
	return func() string {
		l.Helper()
		cancel()
		text := <-rest
		if got := <-status; got != cli.ExitDone {
			l.Errorf("got exit status %d: %s", got, text)
		}
		return text
	}
}

func TestListen_PostsEachEventOnce(t *testing.T) {
	l := newListenTest(t)
	old := l.publish(2)

	end := l.start()
	first := l.publish(150) // more than a page
	l.wait(150)
	if out := end(); !strings.Contains(out, first[0]+" balance.low 200\n") {
		t.Errorf("got %s", out)
	}
	if l.waits.Load() == 0 {
		t.Error("listen did not wait for events")
	}
	meanwhile := l.publish(2)
	end = l.start()
	l.wait(2)
	l.mu.Lock()
	l.failures = 1
	l.mu.Unlock()
	refused := l.publish(1)
	l.wait(1)
	if out := end(); !strings.Contains(out, refused[0]+" balance.low 500: again in 20ms\n") {
		t.Errorf("got %s", out)
	}
	want := append(append(first, meanwhile...), refused...)
	if diff := cmp.Diff(want, l.received); diff != "" {
		t.Errorf("received (-want +got):\n%s", diff)
	}

	l.received = nil
	end = l.start("-from", "beginning")
	l.wait(155)
	end()
	if diff := cmp.Diff(append(old, want...), l.received); diff != "" {
		t.Errorf("received from the beginning (-want +got):\n%s", diff)
	}
	run(t.Context(), cli.Config{}, "", append(l.args, "-types", "balance.low")...).want(t, 1, "was saved with another -api")
	run(t.Context(), cli.Config{}, "", append(l.args, "-cursor", "missing", "-from", "cursor")...).want(t, 1, "missing")
	t.Setenv("KEY", "sak_wrong")
	run(t.Context(), cli.Config{}, "", append(l.args, "-from", "now")...).want(t, 1, "401 UNAUTHORIZED")
}

// A killed command may repeat the event that it was posting, but loses none.
func TestListen_Killed_LosesNoEvent(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes")
	}
	l := newListenTest(t)
	const kills, each = 5, 20
	var published []string
	for i := range kills + 1 {
		command := exec.CommandContext(t.Context(), os.Args[0])
		command.Env = append(os.Environ(), "CLI_ARGS="+strings.Join(append(l.args, "-from", map[bool]string{true: "beginning", false: "cursor"}[i == 0]), "\n"))
		l.distrust()
		out, err := command.StdoutPipe()
		if err == nil {
			err = command.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		line, _ := lines.ReadString('\n')
		l.trust(line)
		go func() { _, _ = io.Copy(io.Discard, lines) }()
		published = append(published, l.publish(each)...)
		if i < kills {
			l.wait(each / 2)
			if err := command.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = command.Wait()
			continue
		}
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			l.mu.Lock()
			last := l.received[len(l.received)-1]
			l.mu.Unlock()
			if last == published[len(published)-1] {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the last event did not arrive")
			}
		}
		if err := command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = command.Wait()
	}
	var once []string
	repeated := 0
	for i, id := range l.received {
		if i > 0 && l.received[i-1] == id {
			repeated++
			continue
		}
		once = append(once, id)
	}
	if diff := cmp.Diff(published, once); diff != "" || repeated > kills {
		t.Errorf("%d events were repeated, at most %d may be (-published +received):\n%s", repeated, kills, diff)
	}
	fmt.Fprintln(t.Output(), repeated, "events were repeated after", kills, "kills")
}
