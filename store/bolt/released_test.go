package bolt_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/storageapitest"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

var writeReleased = flag.Bool("write-released", false, "TestReleasedFiles keeps the file of today's schema in testdata, if there is none yet")

// TestReleasedFiles opens a file of each released schema, testdata/schema-N.db, and a file of the
// current version. It compares the contents of each with the JSON file next to it. release/make
// adds the files of a new schema; existing files never change.
func TestReleasedFiles(t *testing.T) {
	t.Parallel()
	today := filepath.Join(t.TempDir(), "today")
	makeReleased(t, today)
	released, err := filepath.Glob("testdata/schema-*.db")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(released, today+".db") {
		name := strings.TrimSuffix(file, ".db")
		t.Run(filepath.Base(name), func(t *testing.T) { checkReleased(t, name) })
	}
	if !*writeReleased || t.Failed() {
		return
	}
	kept := fmt.Sprintf("testdata/schema-%d", schemaOf(t, today+".db"))
	if _, err := os.Stat(kept + ".db"); err == nil {
		return
	}
	must(t, os.MkdirAll("testdata", 0o755))
	copyFile(t, today+".db", kept+".db")
	copyFile(t, today+".json", kept+".json")
}

// A holding describes the expected contents of a file.
type holding struct {
	At       time.Time // when the file was closed
	Accounts map[string]*accountHolding
	Tokens   map[string]string // key ID by key value; empty if the value is invalid
	Requests map[string]string // ID of the created key by idempotency key, for acct_1
}

type accountHolding struct {
	Keys         []any
	Webhooks     []any
	Secrets      map[string][]string // current and previous secret, by webhook
	Deliveries   map[string][]any    // by webhook
	Recoveries   map[string]any
	AuditEntries []any
}

// An owner creates the contents of an account.
type owner struct {
	*testing.T
	*storageapitest.Kit
	holding    *holding
	recoveries map[string]string // account of each recovery
}

// makeReleased writes name.db, with every kind of record, and name.json, with the expected
// contents.
func makeReleased(t *testing.T, name string) {
	storageapitest.Bubble(t, func(t *testing.T) {
		config := releasedConfig(name + ".db")
		api, err := storageapi.NewHandler(config)
		must(t, err)
		kit := storageapitest.New(t, storageapitest.Handler(api))
		ended := make(chan error)
		go func() { ended <- api.Run(t.Context()) }()
		h := &holding{Accounts: map[string]*accountHolding{}, Tokens: map[string]string{}, Requests: map[string]string{}}
		o := &owner{t, kit, h, map[string]string{}}
		o.fill()
		(&owner{t, kit.For("acct_2"), h, o.recoveries}).fillLittle()

		time.Sleep(2 * time.Hour) // time for background writes and scans of files
		must(t, api.Close())
		must(t, <-ended)
		h.At = time.Now().UTC()
		api, err = storageapi.NewHandler(config) // to read the contents of the file
		must(t, err)
		for _, account := range []string{"acct_1", "acct_2"} {
			h.Accounts[account] = show(t, api, account, o.recoveries)
		}
		must(t, api.Close())
		text, err := json.MarshalIndent(h, "", "\t")
		must(t, err)
		must(t, os.WriteFile(name+".json", append(text, '\n'), 0o600))
	})
}

// releasedConfig returns the configuration of the hosts that write and open the file.
func releasedConfig(path string) storageapi.Config {
	config := storageapi.Config{Path: path, Logger: slog.New(slog.DiscardHandler)}
	config.Alerts.DefaultBalanceThreshold = 10
	config.Alerts.Files = func(_ context.Context, after string, _ time.Time) iter.Seq2[alerts.StoredFile, error] {
		return func(yield func(alerts.StoredFile, error) bool) {
			if after == "" {
				yield(alerts.StoredFile{Account: "acct_2", Cursor: expiringFile.ID, File: expiringFile}, nil)
			}
		}
	}
	return config
}

// fill creates a record of each kind.
func (o *owner) fill() {
	ctx, api, account := o.T.Context(), o.API, o.Account
	month := "2000-01"

	// Create keys that are used, expiring, rotated, renamed, created with an idempotency key, and
	// deleted.
	o.use(o.Key(scopes.FilesRead, scopes.AccountRead))
	key, token, err := api.Keys.Create(ctx, account, apikeys.CreateParams{Name: "expires", Scopes: scopes.Specified(), ExpiresAt: time.Now().AddDate(50, 0, 0), IdempotencyKey: "one"})
	must(o.T, err)
	o.holding.Requests["one"], o.holding.Tokens[token.Reveal()] = key.ID, key.ID
	rotated := o.use(o.Key(scopes.FilesWrite))
	_, token, err = api.Keys.Rotate(ctx, account, rotated.ID, apikeys.RotateParams{Grace: 365 * 24 * time.Hour})
	must(o.T, err)
	o.holding.Tokens[token.Reveal()] = rotated.ID
	name := "renamed ✓"
	_, err = api.Keys.Update(ctx, account, rotated.ID, apikeys.UpdateParams{Name: &name})
	must(o.T, err)
	deleted := o.Key(scopes.FilesRead)
	o.Revoke(deleted)
	o.holding.Tokens[deleted.Value] = ""

	// Create five webhooks: one works, one is turned off by a 410, one fails, one is changed and
	// turned off, and one gets a new secret.
	well, gone, fails := o.Subscribe(), o.Subscribe(alerts.TypeBalanceLow), o.Subscribe(alerts.TypeBandwidthLimitReached)
	off, two := o.Subscribe(alerts.TypeBalanceLow, alerts.TypeFilesExpiring), o.Subscribe(alerts.TypeTransactionsLimitReached)
	gone.Script(storageapitest.Status(410))
	fails.Script(storageapitest.Status(500))
	no, threshold, url := false, uint64(7_500_000_000), off.URL+"elsewhere?a=b"
	_, err = api.Webhooks.Update(ctx, account, off.Webhook.ID, webhooks.UpdateParams{
		Active: &no, Threshold: &threshold, URL: &url, Events: []driver.EventType{alerts.TypeBalanceLow},
	})
	must(o.T, err)
	_, err = api.Webhooks.RotateSecret(ctx, account, two.Webhook.ID, webhooks.RotateParams{Grace: 30 * 24 * time.Hour})
	must(o.T, err)

	// Publish events: reports of all kinds, and an event with a given ID.
	must(o.T, api.Alerts.ReportBalance(ctx, account, 20))
	must(o.T, api.Alerts.ReportBalance(ctx, account, 5))
	must(o.T, api.Alerts.ReportBandwidth(ctx, account, 85, 100, month))
	must(o.T, api.Alerts.ReportBandwidth(ctx, account, 100, 100, month))
	must(o.T, api.Alerts.ReportTransactions(ctx, account, 100, 100, month))
	must(o.T, api.Alerts.ReportFiles(ctx, account, []alerts.ExpiringFile{expiringFile}))
	must(o.T, api.Webhooks.Publish(ctx, webhooks.Event{ID: "evt_given", Account: account, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}))
	time.Sleep(48 * time.Hour) // attempts over two days
	must(o.T, api.Webhooks.Publish(ctx, webhooks.Event{ID: "evt_late", Account: account, Data: alerts.BandwidthLimitReached{UsedBytes: 1, LimitBytes: 1, Period: month}}))
	job, err := api.Webhooks.Recover(ctx, account, well.Webhook.ID, webhooks.RecoverParams{States: []driver.DeliveryState{driver.Delivered}})
	must(o.T, err)
	o.recoveries[job.ID] = account
	time.Sleep(time.Minute)
	fresh, _, err := api.Keys.Create(ctx, account, apikeys.CreateParams{Name: "asked for today", Scopes: scopes.Of(scopes.FilesRead), IdempotencyKey: "two"})
	must(o.T, err)
	o.holding.Requests["two"] = fresh.ID
}

var expiringFile = alerts.ExpiringFile{ID: "file_1", Name: "a ✓ file", EnvironmentID: "env_1", ExpiresAt: time.Date(2000, 1, 7, 12, 0, 0, 0, time.UTC)}

// fillLittle creates the few records of a second account.
func (o *owner) fillLittle() {
	o.use(o.Key(scopes.SecretsRead))
	o.Subscribe(alerts.TypeBalanceLow, alerts.TypeFilesExpiring)
	must(o.T, o.API.Webhooks.Publish(o.T.Context(), webhooks.Event{ID: "evt_given", Account: o.Account, Data: alerts.BalanceLow{Balance: 3, Threshold: 4}}))
}

// use uses a key.
func (o *owner) use(key *storageapitest.Key) *storageapitest.Key {
	o.T.Helper()
	_, err := o.API.Keys.Verify(o.T.Context(), key.Value)
	must(o.T, err)
	o.holding.Tokens[key.Value] = key.ID
	return key
}

// show returns all contents of an account.
func show(t *testing.T, api *storageapi.Handler, account string, recoveries map[string]string) *accountHolding {
	t.Helper()
	ctx := t.Context()
	a := &accountHolding{Secrets: map[string][]string{}, Deliveries: map[string][]any{}, Recoveries: map[string]any{}}
	for key, err := range api.Keys.All(ctx, account, apikeys.KeyQuery{}) {
		must(t, err)
		a.Keys = append(a.Keys, plain(t, key))
	}
	for webhook, err := range api.Webhooks.All(ctx, account, webhooks.WebhookQuery{}) {
		must(t, err)
		a.Webhooks = append(a.Webhooks, plain(t, webhook))
		a.Secrets[webhook.ID] = []string{webhook.Secret.Reveal(), webhook.PreviousSecret.Reveal()}
		for delivery, err := range api.Webhooks.AllDeliveries(ctx, account, webhook.ID, driver.DeliveryQuery{}) {
			must(t, err)
			whole, err := api.Webhooks.Delivery(ctx, account, webhook.ID, delivery.EventID)
			must(t, err)
			a.Deliveries[webhook.ID] = append(a.Deliveries[webhook.ID], plain(t, whole))
		}
	}
	for id, of := range recoveries {
		if of == account {
			job, err := api.Webhooks.Recovery(ctx, account, id)
			must(t, err)
			a.Recoveries[id] = plain(t, job)
		}
	}
	var told []audit.Entry
	for query := (audit.Query{Limit: 3}); query.After != "" || told == nil; {
		page, err := api.Audit.List(ctx, account, query)
		must(t, err)
		told = append(told, page.Entries...)
		if query.After = page.Next; page.Next == "" {
			break
		}
	}
	slices.SortFunc(told, func(a, b audit.Entry) int { return strings.Compare(b.ID, a.ID) })
	for _, n := range told {
		a.AuditEntries = append(a.AuditEntries, plain(t, n))
	}
	return a
}

// plain encodes a value as JSON and decodes it into plain maps and slices.
func plain(t *testing.T, value any) (decoded any) {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	must(t, json.Unmarshal(text, &decoded))
	return decoded
}

// checkReleased sets the clock to the time when name.db was closed, opens a copy of it, and
// compares the contents with name.json.
func checkReleased(t *testing.T, name string) {
	text, err := os.ReadFile(name + ".json")
	must(t, err)
	var want holding
	must(t, json.Unmarshal(text, &want))
	path := filepath.Join(t.TempDir(), "copy.db")
	copyFile(t, name+".db", path)
	verify(t, path)
	storageapitest.Bubble(t, func(t *testing.T) {
		time.Sleep(time.Until(want.At))
		api, err := storageapi.NewHandler(releasedConfig(path))
		must(t, err)
		defer func() { must(t, api.Close()) }()
		recoveries := make(map[string]string)
		for account, a := range want.Accounts {
			for id := range a.Recoveries {
				recoveries[id] = account
			}
		}
		for account, a := range want.Accounts {
			covers(t, account, plain(t, a), plain(t, show(t, api, account, recoveries)))
		}
		checkExpiring(t, api)
		checkOff(t, api)
		checkTokens(t, api, &want)
		checkOnce(t, api)
		deliverAll(t, api, &want)
	})
	verify(t, path)
}

// covers checks that got contains everything in want. Fields that want lacks must be zero.
func covers(t *testing.T, where string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for name, value := range want {
			covers(t, where+"."+name, value, got[name])
		}
		for name, value := range got {
			if _, known := want[name]; !known && !isZero(value) {
				t.Errorf("%s.%s is %v, and was not there", where, name, value)
			}
		}
	case []any:
		got, _ := got.([]any)
		if len(got) != len(want) {
			t.Errorf("%s has %d members, want %d", where, len(got), len(want))
			return
		}
		for i := range want {
			covers(t, fmt.Sprintf("%s[%d]", where, i), want[i], got[i])
		}
	default:
		if got != want && !(isZero(want) && isZero(got)) {
			t.Errorf("%s is %v, want %v", where, got, want)
		}
	}
}

func isZero(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, field := range value {
			if !isZero(field) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	}
	return slices.Contains([]any{nil, "", 0.0, false, "0001-01-01T00:00:00Z"}, value)
}

// checkOff checks the list of webhooks that are off.
func checkOff(t *testing.T, api *storageapi.Handler) {
	t.Helper()
	want, got := map[string]bool{}, map[string]bool{}
	for _, account := range []string{"acct_1", "acct_2"} {
		for webhook, err := range api.Webhooks.All(t.Context(), account, webhooks.WebhookQuery{}) {
			must(t, err)
			if !webhook.Active {
				want[webhook.ID] = true
			}
		}
	}
	for webhook, err := range api.Webhooks.AllOff(t.Context()) {
		must(t, err)
		got[webhook.ID] = true
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 2 {
		t.Errorf("webhooks that are off (-want +got):\n%s", diff)
	}
}

// checkExpiring checks the list of keys by expiry.
func checkExpiring(t *testing.T, api *storageapi.Handler) {
	t.Helper()
	var want, got []string
	for _, account := range []string{"acct_1", "acct_2"} {
		for key, err := range api.Keys.All(t.Context(), account, apikeys.KeyQuery{}) {
			must(t, err)
			if !key.ExpiresAt.IsZero() {
				want = append(want, key.ID)
			}
		}
	}
	for key, err := range api.Keys.AllExpiring(t.Context(), time.Time{}, time.Now().AddDate(100, 0, 0)) {
		must(t, err)
		got = append(got, key.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
		t.Errorf("keys that expire (-want +got):\n%s", diff)
	}
}

// checkTokens verifies the values of keys. It also repeats the creations whose idempotency keys are
// less than a day old.
func checkTokens(t *testing.T, api *storageapi.Handler, want *holding) {
	t.Helper()
	for token, id := range want.Tokens {
		principal, err := api.Keys.Verify(t.Context(), token)
		if (err == nil) != (id != "") || principal.KeyID != id {
			t.Errorf("a value of key %q is of %q, %v", id, principal.KeyID, err)
		}
	}
	key, token, err := api.Keys.Create(t.Context(), "acct_1", apikeys.CreateParams{Name: "asked for today", Scopes: scopes.Of(scopes.FilesRead), IdempotencyKey: "two"})
	if err != nil || key.ID != want.Requests["two"] || token.Reveal() != "" {
		t.Errorf("an idempotency key leads to %s, %v, want %s", key.ID, err, want.Requests["two"])
	}
}

// checkOnce repeats earlier reports and events, and checks that this adds no deliveries.
func checkOnce(t *testing.T, api *storageapi.Handler) {
	t.Helper()
	ctx := t.Context()
	before, err := api.Webhooks.Stats(ctx)
	must(t, err)
	must(t, api.Alerts.ReportBalance(ctx, "acct_1", 4))
	must(t, api.Alerts.ReportBandwidth(ctx, "acct_1", 101, 100, "2000-01"))
	must(t, api.Alerts.ReportTransactions(ctx, "acct_1", 101, 100, "2000-01"))
	must(t, api.Alerts.ReportFiles(ctx, "acct_1", []alerts.ExpiringFile{expiringFile}))
	for _, account := range []string{"acct_1", "acct_2"} {
		must(t, api.Webhooks.Publish(ctx, webhooks.Event{ID: "evt_given", Account: account, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}))
	}
	after, err := api.Webhooks.Stats(ctx)
	must(t, err)
	if after.Pending != before.Pending || before.Pending == 0 {
		t.Errorf("%d deliveries are pending after what was already told, %d before", after.Pending, before.Pending)
	}
}

// deliverAll delivers the pending deliveries, and checks that the stored secrets sign them.
func deliverAll(t *testing.T, api *storageapi.Handler, want *holding) {
	t.Helper()
	kit := storageapitest.New(t, storageapitest.Handler(api))
	pending := make(map[*storageapitest.Receiver]int)
	for account, a := range want.Accounts {
		for webhook, err := range api.Webhooks.All(t.Context(), account, webhooks.WebhookQuery{}) {
			must(t, err)
			if !webhook.Active {
				continue
			}
			host, _, _ := strings.Cut(strings.TrimPrefix(webhook.URL, "https://"), "/")
			receiver := kit.Receiver(host)
			for _, text := range a.Secrets[webhook.ID] {
				if secret, err := signing.ParseSecret(text); err == nil {
					receiver.Trust(secret)
				}
			}
			pending[receiver] = 0
			for _, delivery := range a.Deliveries[webhook.ID] {
				if delivery.(map[string]any)["State"] == string(driver.Pending) {
					pending[receiver]++
				}
			}
		}
	}
	go api.Run(t.Context())
	kit.WaitIdle()
	kit.For("acct_2").WaitIdle()
	all := 0
	for receiver, n := range pending {
		if got := len(receiver.Events()); got != n {
			t.Errorf("%s: %d events arrived, want the %d that were pending: %+v", receiver.URL, got, n, receiver.Events())
		}
		all += n
	}
	if all == 0 {
		t.Error("nothing was pending")
	}
}

// schemaOf returns the schema of a file.
func schemaOf(t *testing.T, path string) (version uint64) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	must(t, err)
	defer db.Close()
	must(t, db.View(func(tx *bbolt.Tx) error {
		version = binary.BigEndian.Uint64(tx.Bucket([]byte("meta")).Get([]byte("format")))
		return nil
	}))
	return version
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, content, 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
