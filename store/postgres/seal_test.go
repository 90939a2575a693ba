package postgres_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
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
	if err := open(t, option).CreateWebhook(t.Context(), w, webhooks.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	records := func() (secret, previous []byte) {
		t.Helper()
		if err := pool(t).QueryRow(t.Context(), `select secret, previous_secret from `+quoted(name)+`.webhooks`).Scan(&secret, &previous); err != nil {
			t.Fatal(err)
		}
		return secret, previous
	}
	if secret, _ := records(); string(secret) != w.Secret.Reveal() {
		t.Error("without keys the secret is not stored in plain")
	}
	for _, keys := range []*signing.Keyring{keyring(t, 1), keyring(t, 2, 1), keyring(t, 2)} {
		s := open(t, option, postgres.Sealed(keys))
		got, err := s.WebhookByID(t.Context(), "acct", "wh")
		if err != nil || !got.Secret.Equal(w.Secret) || !got.PreviousSecret.Equal(w.PreviousSecret) {
			t.Errorf("WebhookByID = other secrets, %v", err)
		}
		secret, previous := records()
		if !keys.Current(secret) || !keys.Current(previous) {
			t.Error("the secrets are not sealed under the first key")
		}
	}
	for _, options := range [][]postgres.Option{{option}, {option, postgres.Sealed(keyring(t, 3))}} {
		if _, err := postgres.New(t.Context(), pool(t), options...); !errors.Is(err, signing.ErrSealed) {
			t.Errorf("New without the key = %v, want ErrSealed", err)
		}
	}
}

// A webhook whose secret cannot be read does not keep the others from theirs.
func TestUnreadable(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option, postgres.Sealed(keyring(t, 1)))
	service, err := webhooks.New(s, webhooks.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if err := s.CreateWebhook(t.Context(), newWebhook("acct", id), webhooks.CreateOptions{}); err != nil {
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
		settleAs(t, s, task, webhooks.GiveUp)
	}
}
