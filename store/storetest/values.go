package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
)

// some is a time with milliseconds, which a faulty store could drop.
var some = time.Date(2031, 4, 5, 6, 7, 8, int(9*time.Millisecond), time.UTC)

// same holds the options for comparing stored values with returned values.
var same = cmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.EquateComparable(scopes.Set{}),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) && a.Location() == b.Location() }),
	cmpopts.IgnoreFields(driver.Webhook{}, "Version"), // tested by versions
	cmpopts.IgnoreFields(Task{}, "Age", "Ref"),
}

// oddStrings are strings that a faulty store could change or confuse with each other.
var oddStrings = []string{
	"a", "A", "ab", "a/b", "a:b", "a b", "a\tb", "a\nb", "a,b", "a%", "a_", "a-", "a.", "a'", `a"`, `a\`, "a\u007f",
	"é", "e\u0301", "日本語", "😀", "\u00a0", "\ufeff", "--", "/", ":", "%s", "null", "0",
}

// long returns an incompressible string of n bytes.
func long(seed string, n int) string {
	var b strings.Builder
	for sum := sha256.Sum256([]byte(seed)); b.Len() < n; sum = sha256.Sum256(sum[:]) {
		b.WriteString(hex.EncodeToString(sum[:]))
	}
	return b.String()[:n]
}

// numbered returns an ID made of prefix and n. IDs with the same prefix sort by n.
func numbered(prefix string, n int) string { return fmt.Sprintf("%s_%06d", prefix, n) }

// hashOf returns a hash that depends only on parts.
func hashOf(parts ...string) driver.Hash {
	return driver.Hash{Sum: sha256.Sum256(fmt.Appendf(nil, "%q", parts))}
}

// hintOf returns four characters, derived from the ID, to end a key's hint.
func hintOf(id string) string { return long(id, 4) }

// newKey returns a key whose hash depends only on account and ID.
func newKey(account, id string) driver.Key {
	return driver.Key{
		ID:        id,
		Account:   account,
		Name:      "key " + id,
		Scopes:    scopes.Of(scopes.FilesWrite, scopes.AccountRead, scopes.FilesRead),
		Resources: limitedTo("bucket-1", `"\`),
		CreatedAt: some,
		Hash:      hashOf(account, id),
		CreatedBy: audit.Actor{Kind: audit.ActorHost},
		Hint:      "sak_…" + hintOf(id),
	}
}

// rotatedKey returns a key with all fields set.
func rotatedKey(account, id string) driver.Key {
	key := newKey(account, id)
	key.ExpiresAt = some.Add(12345 * time.Millisecond)
	key.CreatedBy = audit.Actor{Kind: audit.ActorPerson, ID: "ann:é@example.com"}
	key.Previous = hashOf(account, id, "previous")
	key.PreviousHint = "before_…" + hintOf(id)
	key.PreviousExpiresAt = some.Add(1234 * time.Millisecond)
	key.AllowedNetworks, key.RateLimit = "192.0.2.0/24 2001:db8::/32", 60
	key.RotatedAt = some.Add(time.Second)
	key.Disabled = true
	key.Labels = driver.LabelsOf(map[string]string{"team": "billing", "é": "<😀>", "empty": ""})
	return key
}

// The event types of the tests.
const (
	eventType  driver.EventType = "tests.done" // the type of newEvent's events
	otherType  driver.EventType = "tests.failed"
	thirdType  driver.EventType = "tests.skipped"
	fourthType driver.EventType = "tests.repeated"
)

// newWebhook returns an active webhook, subscribed to newEvent's type.
func newWebhook(account, id string) driver.Webhook {
	return driver.Webhook{
		ID:            id,
		Account:       account,
		URL:           "https://example.com/" + id,
		Events:        []driver.EventType{otherType, eventType},
		WebhookHealth: driver.WebhookHealth{Active: true},
		Threshold:     12_500_000_001,
		Secret:        signing.NewSecret(),
		CreatedAt:     some,
	}
}

// someHeaders returns plain and secret headers.
func someHeaders() []driver.Header {
	return []driver.Header{
		{Name: "Authorization", Value: "Bearer a: b", Secret: true}, {Name: "X-Team", Value: "a: b  c"},
		{Name: "X-Token", Value: long("token", 3000), Secret: true},
	}
}

func newEvent(account, id string) driver.EncodedEvent {
	return driver.EncodedEvent{
		ID:        id,
		Account:   account,
		Type:      eventType,
		Timestamp: some,
		Resource:  "bucket-1",

		TraceContext: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",

		Body: fmt.Appendf(nil, `{"id": %q,  "data":{"b":1,"a":2, "a":3, "é":1e2}}`, id),
	}
}

// attemptOf returns an attempt for a task with all fields set.
func attemptOf(task Task) driver.Attempt {
	return driver.Attempt{
		Number:    task.Attempt,
		StartedAt: some.Add(time.Duration(task.Attempt) * time.Second),
		Duration:  1234567 * time.Microsecond,
		Status:    503,
		Class:     driver.ClassStatus,
		Error:     "503 Service Unavailable",
		Response:  "<h1>Down</h1>\r\n",
	}
}

// at returns the time some plus the given number of minutes.
func at(minutes time.Duration) time.Time { return some.Add(minutes * time.Minute) }

// settlement returns a settlement of a task.
func settlement(task Task, outcome driver.Effect) Settlement {
	return Settlement{Task: task, Effect: outcome, Attempt: attemptOf(task)}
}
