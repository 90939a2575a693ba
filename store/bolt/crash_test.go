package bolt_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

var kills = flag.Int("kills", 20, "how often TestKill kills its child")

// TestKill repeatedly kills a process that creates keys and publishes events from several
// goroutines in the same file. The file must contain every acknowledged change.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var acknowledged []string
	for range *kills {
		delay := time.Duration(rand.Int64N(int64(30 * time.Millisecond)))
		acknowledged = append(acknowledged, killAfter(t, child(t, "publish", dir), delay)...)
	}

	s := open(t, dir)
	defer func() { _ = s.Close() }()
	keys, err := apikeys.New(s, apikeys.Config{})
	if err != nil {
		t.Fatal(err)
	}
	pending := make(map[string]int) // by event ID
	for {
		tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(tasks) == 0 {
			break
		}
		for _, task := range tasks {
			pending[task.Event.ID]++
		}
	}
	lost, events := 0, 0
	for _, line := range acknowledged {
		kind, what, _ := strings.Cut(line, " ")
		switch kind {
		case "key":
			if _, err := keys.Verify(t.Context(), what); err != nil {
				lost++
			}
		case "event":
			events++
			if pending[what] != 1 {
				lost++
			}
		}
	}
	t.Logf("%d kills, %d acknowledged (%d of them events), %d lost", *kills, len(acknowledged), events, lost)
	if lost > 0 {
		t.Errorf("%d of %d acknowledged are lost", lost, len(acknowledged))
	}
	if events == 0 {
		t.Error("no event was acknowledged: the test tests nothing")
	}
}

// publishForEver creates keys and publishes events. It prints a line for each acknowledgment.
func publishForEver(path string) error {
	s, err := bolt.Open(path)
	if err != nil {
		return err
	}
	ctx := context.Background()
	keys, err := apikeys.New(s, apikeys.Config{})
	if err != nil {
		return err
	}
	hooks, err := webhooks.New(s, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		return err
	}
	if list, err := hooks.List(ctx, "acct", webhooks.WebhookQuery{Limit: 1}); err != nil {
		return err
	} else if len(list.Webhooks) == 0 {
		_, err := hooks.Create(ctx, "acct", webhooks.CreateParams{
			URL: "https://example.com/", Events: []driver.EventType{alerts.TypeBalanceLow},
		})
		if err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards whole lines of output
	say := func(format string, what string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(os.Stdout, format, what)
	}
	for range 8 {
		wg.Go(func() {
			for err == nil {
				event := webhooks.Event{ID: hooks.NewEventID(), Account: "acct", Data: alerts.BalanceLow{Balance: 1}}
				if hooks.Publish(ctx, event) == nil {
					say("event %s\n", event.ID)
				}
				_, token, createErr := keys.Create(ctx, "acct", apikeys.CreateParams{Name: "k", Scopes: scopes.Specified()})
				if createErr == nil {
					say("key %s\n", token.Reveal())
				}
			}
		})
	}
	wg.Wait()
	return nil
}
