package httpapi_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// A row is a row in the key table of another system.
type row struct{ account, value, hash, name string }

// table returns a table of n keys spread across ten accounts.
func table(n int) []row {
	rows := make([]row, n)
	for i := range rows {
		random := sha256.Sum256(fmt.Append(nil, "value ", i))
		value := "live_" + hex.EncodeToString(random[:20])
		sum := sha256.Sum256([]byte(value))
		rows[i] = row{fmt.Sprint("acct_", i%10), value, hex.EncodeToString(sum[:]), fmt.Sprint("key ", i)}
	}
	return rows
}

func moving(config storageapi.Config) storageapi.Config {
	config.Keys.Legacy = []apikeys.Legacy{{Kind: "live", Prefix: "live_", MinLength: 45, MaxLength: 45, Alphabet: "0123456789abcdef"}}
	return config
}

// move imports a table in the way that docs/migration.md describes.
func move(t testing.TB, api *storageapi.Handler, rows []row) (imported, existed int) {
	t.Helper()
	byAccount := make(map[string][]apikeys.ImportedKey)
	for _, r := range rows {
		byAccount[r.account] = append(byAccount[r.account], apikeys.ImportedKey{
			Kind: "live", Digest: r.hash, Name: r.name, Scopes: scopes.Of(scopes.FilesRead, scopes.AccountRead), CreatedAt: time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC),
		})
	}
	for account, keys := range byAccount {
		for i, result := range api.Keys.Import(t.Context(), account, keys) {
			switch {
			case result.Err != nil:
				t.Fatalf("%s, %s: %v", account, keys[i].Name, result.Err)
			case result.Existed:
				existed++
			default:
				imported++
			}
		}
	}
	return imported, existed
}

// The test imports 10,000 keys of another system into a file, and closes and reopens the file in
// between. The keys must keep working over HTTP, and a stolen dump of the table must be useless.
func TestImport_KeysOfAnotherSystem_KeepWorking(t *testing.T) {
	path := t.TempDir() + "/storage.db"
	rows := table(10_000)
	api := newAPI(t, moving(storageapi.Config{Path: path}))
	if imported, existed := move(t, api, rows[:6000]); imported != 6000 || existed != 0 {
		t.Fatalf("%d imported, %d existed", imported, existed)
	}
	if err := api.Close(); err != nil { // then repeat the import from the start
		t.Fatal(err)
	}
	h := serve(t, moving(storageapi.Config{Path: path}))
	if imported, existed := move(t, h.api, rows); imported != 4000 || existed != 6000 {
		t.Fatalf("again: %d imported, %d existed", imported, existed)
	}
	for i, r := range rows {
		p, err := h.api.Keys.Verify(t.Context(), r.value)
		if err != nil || p.Account != r.account {
			t.Fatalf("key %d: %+v, %v", i, p, err)
		}
		if _, err := h.api.Keys.Verify(t.Context(), r.hash); err == nil {
			t.Fatalf("key %d: its digest is accepted", i)
		}
	}
	used := 0
	for account := range 10 {
		stats, err := h.api.Keys.Imported(t.Context(), fmt.Sprint("acct_", account))
		if err != nil || stats.Keys != 1000 {
			t.Fatalf("account %d: %+v, %v", account, stats, err)
		}
		used += stats.Used
	}
	if used != len(rows) {
		t.Errorf("%d were used", used)
	}

	value := rows[0].value
	h.do("GET", keysPath+"?limit=1", value, "").want(200, "")
	h.do("GET", keysPath, rows[0].hash, "").want(401, "UNAUTHORIZED")
	h.do("GET", keysPath, "live_"+rows[0].hash[:40], "").want(401, "UNAUTHORIZED")
	h.do("POST", keysPath, value, newKey).want(409, "CONFLICT") // the account has reached its limit
	hook := h.do("POST", webhooksPath, value, `{"url":"https://example.com/","events":["balance.low"]}`).want(201, "")
	h.do("DELETE", hook.header.Get("Location"), value, "").want(204, "")
	p, err := h.api.Keys.Verify(t.Context(), value)
	if err != nil {
		t.Fatal(err)
	}
	key := keysPath + "/" + p.KeyID
	h.do("PATCH", key, value, `{"name":"moved"}`).want(200, "")
	rotated := h.do("POST", key+"/rotate", value, `{"graceSeconds":0}`).want(200, "").text("key")
	h.do("GET", key, value, "").want(401, "UNAUTHORIZED")
	h.do("GET", key, rotated, "").want(200, "")
	h.do("DELETE", key, rotated, "").want(204, "")
}

// The test imports a webhook. The webhook must keep its secret.
func TestImport_Webhook_KeepsSecret(t *testing.T) {
	api := newAPI(t, newClock().config())
	secret, err := signing.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	params := webhooks.CreateParams{URL: "https://example.com/", Events: []webhooks.EventType{alerts.TypeBalanceLow}, Secret: secret}
	made, err := api.Webhooks.Create(t.Context(), alice, params)
	if err != nil || made.Secret.Reveal() != secret.Reveal() {
		t.Fatalf("Create = %v with another secret, or %v", made.ID, err)
	}
	if stored, err := api.Webhooks.Get(t.Context(), alice, made.ID); err != nil || stored.Secret.Reveal() != secret.Reveal() {
		t.Errorf("stored: another secret, or %v", err)
	}
	params.Secret = signing.Secret{}
	if other, err := api.Webhooks.Create(t.Context(), alice, params); err != nil || other.Secret.IsZero() || other.Secret.Reveal() == secret.Reveal() {
		t.Errorf("without one: the same secret, or none, or %v", err)
	}
}

// BenchmarkImport imports 10,000 keys into a file.
//
//	go test -run '^$' -bench Import -benchtime 5x ./internal/httpapi
func BenchmarkImport(b *testing.B) {
	rows := table(10_000)
	var took time.Duration
	for b.Loop() {
		b.StopTimer()
		api := newAPI(b, moving(storageapi.Config{}))
		b.StartTimer()
		began := time.Now()
		move(b, api, rows)
		took += time.Since(began)
	}
	b.ReportMetric(float64(b.N*len(rows))/took.Seconds(), "keys/s")
}
