package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/webhooks"
)

func keyring(t *testing.T, fill ...byte) *signing.Keyring {
	t.Helper()
	var keys [][]byte
	for _, b := range fill {
		keys = append(keys, bytes.Repeat([]byte{b}, signing.KeySize))
	}
	ring, err := signing.NewKeyring(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func TestSealed(t *testing.T) {
	name, option := migratedSchema(t)
	w := newWebhook("acct", "wh")
	w.PreviousSecret, w.PreviousSecretExpiresAt = signing.NewSecret(), time.Now().Add(time.Hour)
	w.Headers = []driver.Header{{Name: "X-Token", Value: "a token", Secret: true}}
	if err := open(t, option).CreateWebhook(t.Context(), w, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	records := func() (secret, previous, headers []byte) {
		t.Helper()
		if err := pool(t).QueryRow(t.Context(), `select secret, previous_secret, header_secrets from `+quoted(name)+`.webhooks`).Scan(&secret, &previous, &headers); err != nil {
			t.Fatal(err)
		}
		return secret, previous, headers
	}
	if secret, _, headers := records(); string(secret) != w.Secret.Reveal() || string(headers) != "a token" {
		t.Error("without keys the secret is not stored in plain")
	}
	dataKey := func() (sealed []byte) {
		t.Helper()
		if err := pool(t).QueryRow(t.Context(), `select seal from `+quoted(name)+`.marks where name = 'data_key'`).Scan(&sealed); err != nil {
			t.Fatal(err)
		}
		return sealed
	}
	for i, sealer := range []signing.Sealer{keyring(t, 1), keyring(t, 2, 1), keyring(t, 2)} {
		s := open(t, option, postgres.Sealed(sealer))
		got, err := s.WebhookByID(t.Context(), "acct", "wh")
		if err != nil || !got.Secret.Equal(w.Secret) || !got.PreviousSecret.Equal(w.PreviousSecret) || !slices.Equal(got.Headers, w.Headers) {
			t.Errorf("WebhookByID = other secrets, %v", err)
		}
		key, stale, err := signing.OpenDataKey(t.Context(), sealer, dataKey())
		if err != nil || stale {
			t.Fatalf("Sealer %d: the data key is stale: %v, %v", i, stale, err)
		}
		secret, previous, headers := records()
		if !key.Current(secret) || !key.Current(previous) || !key.Current(headers) {
			t.Errorf("Sealer %d: the secrets are not sealed with the data key", i)
		}
	}
	for _, options := range [][]postgres.Option{{option}, {option, postgres.Sealed(keyring(t, 3))}} {
		if _, err := postgres.New(t.Context(), pool(t), options...); !errors.Is(err, signing.ErrSealed) {
			t.Errorf("New without the key = %v, want ErrSealed", err)
		}
	}
	for _, change := range []string{`update %s.marks set seal = substring(seal for 30) where name = 'data_key'`, `delete from %s.marks where name = 'data_key'`} {
		if _, err := pool(t).Exec(t.Context(), fmt.Sprintf(change, quoted(name))); err != nil {
			t.Fatal(err)
		}
		if _, err := postgres.New(t.Context(), pool(t), option, postgres.Sealed(keyring(t, 2))); !errors.Is(err, signing.ErrDamaged) {
			t.Errorf("New after %q = %v, want ErrDamaged", change, err)
		}
	}
}

// Nodes that start at the same time on an empty schema agree on one data key. They also agree if
// the Sealer's key is replaced.
func TestSealed_NodesStartAtOnce_AgreeOnDataKey(t *testing.T) {
	_, option := migratedSchema(t)
	nodes := make([]*postgres.Store, 4)
	start := func(sealers ...signing.Sealer) {
		t.Helper()
		var group sync.WaitGroup
		var waiting sync.WaitGroup // lets each node read the row before any node writes it
		waiting.Add(len(nodes))
		for i := range nodes {
			group.Go(func() {
				var err error
				meet := sync.OnceFunc(func() { waiting.Done(); waiting.Wait() })
				if nodes[i], err = postgres.New(t.Context(), pool(t), option, postgres.Sealed(meetingSealer{sealers[i%len(sealers)], meet})); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	check := func(account string) {
		t.Helper()
		for i, node := range nodes {
			w := newWebhook(account, fmt.Sprint("wh_", account, i))
			if err := node.CreateWebhook(t.Context(), w, driver.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			for j, other := range nodes {
				got, err := other.WebhookByID(t.Context(), account, w.ID)
				if err != nil || !got.Secret.Equal(w.Secret) {
					t.Errorf("%s: node %d reads the webhook of node %d: another secret, or %v", account, j, i, err)
				}
			}
		}
		for _, node := range nodes {
			if err := node.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	start(keyring(t, 1))
	check("new")
	start(keyring(t, 2, 1), keyring(t, 1, 2))
	check("rotation")
	start(keyring(t, 2, 1))
	check("rotated")
}

// A meetingSealer calls meet before it seals or opens.
type meetingSealer struct {
	signing.Sealer
	meet func()
}

func (s meetingSealer) Seal(ctx context.Context, plain []byte) ([]byte, error) {
	s.meet()
	return s.Sealer.Seal(ctx, plain)
}

func (s meetingSealer) Open(ctx context.Context, sealed []byte) ([]byte, bool, error) {
	s.meet()
	return s.Sealer.Open(ctx, sealed)
}

type failingSealer struct{ signing.Sealer }

var errUnreachable = errors.New("KMS unreachable")

func (failingSealer) Open(context.Context, []byte) ([]byte, bool, error) {
	return nil, false, errUnreachable
}

// While the Sealer is unavailable, nodes cannot start, but running nodes are not affected.
func TestSealed_SealerFails_IsErrSealer(t *testing.T) {
	_, option := migratedSchema(t)
	if _, err := postgres.New(t.Context(), pool(t), option, postgres.Sealed(failingSealer{keyring(t, 1)})); !errors.Is(err, signing.ErrSealer) || !errors.Is(err, errUnreachable) {
		t.Errorf("New on an empty schema = %v, want ErrSealer and the Sealer's error", err)
	}
	s := open(t, option, postgres.Sealed(keyring(t, 1))) // the failed start has stored no key
	w := newWebhook("acct", "wh")
	if err := s.CreateWebhook(t.Context(), w, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.New(t.Context(), pool(t), option, postgres.Sealed(failingSealer{keyring(t, 1)})); !errors.Is(err, signing.ErrSealer) {
		t.Errorf("New on a sealed schema = %v, want ErrSealer", err)
	}
	if got, err := s.WebhookByID(t.Context(), "acct", "wh"); err != nil || !got.Secret.Equal(w.Secret) {
		t.Errorf("WebhookByID of the running node: another secret, or %v", err)
	}
}

// A webhook whose secret cannot be read does not affect other webhooks.
func TestUnreadableSecret_AffectsOnlyItsWebhook(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option, postgres.Sealed(keyring(t, 1)))
	service, err := webhooks.New(s, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if err := s.CreateWebhook(t.Context(), newWebhook("acct", id), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := service.Publish(t.Context(), lowBalance("acct", "event")); err != nil {
		t.Fatal(err)
	}
	if _, err := pool(t).Exec(t.Context(), `update `+quoted(name)+`.webhooks set secret = substring(secret for 40) where id = 'a'`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WebhookByID(t.Context(), "acct", "a"); !errors.Is(err, signing.ErrDamaged) {
		t.Errorf("WebhookByID = %v, want ErrDamaged", err)
	}
	tasks := claimed(t, s)
	if len(tasks) != 2 {
		t.Fatalf("claimed %d, want 2", len(tasks))
	}
	for _, task := range tasks {
		if bad := task.Webhook.ID == "a"; bad != (task.Err != nil) {
			t.Errorf("Task.Err of %s = %v", task.Webhook.ID, task.Err)
		}
		settleAs(t, s, task, driver.GiveUp)
	}
}
