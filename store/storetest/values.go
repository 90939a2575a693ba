package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// some is a time with milliseconds that are easily lost.
var some = time.Date(2031, 4, 5, 6, 7, 8, int(9*time.Millisecond), time.UTC)

// same compares what was stored with what came back.
var same = cmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.EquateComparable(scopes.Set{}),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) && a.Location() == b.Location() }),
	cmpopts.IgnoreFields(webhooks.Webhook{}, "Version"), // see versions
	cmpopts.IgnoreFields(Task{}, "Age", "Ref"),
}

// oddStrings are hard to keep apart, or to keep at all.
var oddStrings = []string{
	"a", "A", "ab", "a/b", "a:b", "a b", "a\tb", "a\nb", "a,b", "a%", "a_", "a-", "a.", "a'", `a"`, `a\`, "a\u007f",
	"é", "e\u0301", "日本語", "😀", "\u00a0", "\ufeff", "--", "/", ":", "%s", "null", "0",
}

// long returns a string of n bytes that no compression makes short.
func long(seed string, n int) string {
	var b strings.Builder
	for sum := sha256.Sum256([]byte(seed)); b.Len() < n; sum = sha256.Sum256(sum[:]) {
		b.WriteString(hex.EncodeToString(sum[:]))
	}
	return b.String()[:n]
}

// numbered returns an id; those of one prefix sort by their numbers.
func numbered(prefix string, n int) string { return fmt.Sprintf("%s_%06d", prefix, n) }

// hashOf returns a hash that is the same for the same parts only.
func hashOf(parts ...string) apikeys.Hash {
	return apikeys.Hash{Sum: sha256.Sum256(fmt.Appendf(nil, "%q", parts))}
}

// hintOf returns the end of the hint of a key.
func hintOf(id string) string { return long(id, 4) }

// newKey returns a key whose hash follows from account and id.
func newKey(account, id string) apikeys.Key {
	return apikeys.Key{
		ID:        id,
		Account:   account,
		Name:      "key " + id,
		Scopes:    scopes.Of(scopes.FilesWrite, scopes.AccountRead, scopes.FilesRead),
		CreatedAt: some,
		Hash:      hashOf(account, id),
		CreatedBy: notices.Actor{Kind: notices.ActorHost},
		Hint:      "sak_…" + hintOf(id),
	}
}

// rotatedKey returns a key that has everything a key can have.
func rotatedKey(account, id string) apikeys.Key {
	key := newKey(account, id)
	key.ExpiresAt = some.Add(12345 * time.Millisecond)
	key.CreatedBy = notices.Actor{Kind: notices.ActorPerson, ID: "ann:é@example.com"}
	key.Previous = hashOf(account, id, "previous")
	key.PreviousHint = "before_…" + hintOf(id)
	key.PreviousExpiresAt = some.Add(1234 * time.Millisecond)
	return key
}

// newWebhook returns an active webhook, subscribed to newEvent's type.
func newWebhook(account, id string) webhooks.Webhook {
	return webhooks.Webhook{
		ID:               id,
		Account:          account,
		URL:              "https://example.com/" + id,
		Events:           []webhooks.EventType{webhooks.TypeFilesExpiring, webhooks.TypeBalanceLow},
		WebhookHealth:    webhooks.WebhookHealth{Active: true},
		BalanceThreshold: 12_500_000_001,
		Secret:           signing.NewSecret(),
		CreatedAt:        some,
	}
}

func newEvent(account, id string) webhooks.EncodedEvent {
	return webhooks.EncodedEvent{
		ID:        id,
		Account:   account,
		Type:      webhooks.TypeBalanceLow,
		Timestamp: some,

		TraceContext: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",

		Body: fmt.Appendf(nil, `{"id": %q,  "data":{"b":1,"a":2, "a":3, "é":1e2}}`, id),
	}
}

// attemptOf returns what to log of a task, with everything that an attempt can
// have.
func attemptOf(task Task) webhooks.Attempt {
	return webhooks.Attempt{
		Number:    task.Attempt,
		StartedAt: some.Add(time.Duration(task.Attempt) * time.Second),
		Duration:  1234567 * time.Microsecond,
		Status:    503,
		Class:     webhooks.ClassStatus,
		Error:     "503 Service Unavailable",
		Response:  "<h1>Down</h1>\r\n",
	}
}

// at is so many minutes after some time.
func at(minutes time.Duration) time.Time { return some.Add(minutes * time.Minute) }

// settlement returns the end of a task's claim.
func settlement(task Task, outcome webhooks.Outcome) Settlement {
	return Settlement{Task: task, Outcome: outcome, Attempt: attemptOf(task)}
}
