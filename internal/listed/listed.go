// Package listed lists the fields of keys and webhooks. The stores of this module, exports, and the
// comparisons of the services use these lists.
//
//	fields.Equal((*listed.Key)(&before), (*listed.Key)(&after), fields.Conditioned)
package listed

import (
	"encoding/base64"
	"encoding/hex"
	"slices"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
)

// A Key is a [driver.Key] with a list of its fields.
type Key driver.Key

// Fields implements [fields.Record]. A new field needs a line here with the next even tag, or an
// odd one if older versions must not accept a key that has the field set; the stores need no other
// change to keep it.
func (k *Key) Fields(w *fields.Walk) {
	if !w.Packed() {
		fields.Text(w, "account", fields.Placed, 0, &k.Account)
		fields.Text(w, "id", fields.Placed, 0, &k.ID)
		fields.Text(w, "name", fields.Placed, fields.Setting|fields.Created, &k.Name)
		fields.FormattedTexts(w, "scopes", fields.Placed, fields.Setting|fields.Created, &k.Scopes, scopes.Set.Names, scopes.FromNames)
		fields.Time(w, "createdAt", fields.Placed, 0, &k.CreatedAt)
		fields.Time(w, "expiresAt", fields.Placed, fields.Setting|fields.Created, &k.ExpiresAt)
		fields.Formatted(w, "hash", fields.Placed, fields.Value|fields.Tagged, &k.Hash, formatHash, nil)
		fields.Formatted(w, "previous", fields.Placed, fields.Guarded, &k.Previous, formatHash, nil)
		fields.Time(w, "previousExpiresAt", fields.Placed, 0, &k.PreviousExpiresAt)
		fields.Time(w, "lastUsedAt", fields.Placed, 0, &k.LastUsedAt)
		fields.Time(w, "previousUsedAt", fields.Placed, 0, &k.PreviousUsedAt)
		fields.Formatted(w, "activity", fields.Placed, 0, &k.Activity, formatActivity, nil)
	}
	fields.Text(w, "hint", 2, 0, &k.Hint)
	fields.Text(w, "createdByKind", 4, 0, &k.CreatedBy.Kind)
	fields.Text(w, "createdById", 6, 0, &k.CreatedBy.ID)
	fields.Text(w, "previousHint", 8, 0, &k.PreviousHint)
	fields.FormattedTexts(w, "resources", 11, fields.Created, &k.Resources, auth.Resources.Names, auth.ParseResources)
	fields.Time(w, "rotatedAt", 12, 0, &k.RotatedAt)
	fields.Bool(w, "disabled", 13, fields.Setting, &k.Disabled)
	fields.Text(w, "labels", 14, fields.Setting|fields.Created, &k.Labels)
	fields.Text(w, "allowedNetworks", 15, fields.Setting|fields.Created, &k.AllowedNetworks)
	fields.Number(w, "rateLimit", 17, fields.Setting|fields.Created, &k.RateLimit)
}

func formatActivity(a driver.KeyActivity) string {
	return base64.StdEncoding.EncodeToString([]byte(a))
}

func formatHash(h driver.Hash) string {
	if h.IsZero() {
		return ""
	}
	return hex.EncodeToString(h.Sum[:])
}

// A Webhook is a [driver.Webhook] with a list of its fields.
type Webhook driver.Webhook

// Fields implements [fields.Record]. A new field needs a line here with the next even tag, or an
// odd one if older versions must not send to a webhook that has the field set; the stores need no
// other change to keep it. Version is not listed, because each store counts its own changes.
func (w *Webhook) Fields(walk *fields.Walk) {
	if !walk.Packed() {
		fields.Text(walk, "account", fields.Placed, 0, &w.Account)
		fields.Text(walk, "id", fields.Placed, 0, &w.ID)
		fields.Text(walk, "url", fields.Placed, fields.Setting|fields.Created|fields.Sent, &w.URL)
		fields.Texts(walk, "events", fields.Placed, fields.Setting|fields.Created, &w.Events)
		fields.Bool(walk, "active", fields.Placed, fields.Setting, &w.Active)
		fields.Bool(walk, "held", fields.Placed, fields.Setting, &w.Held)
		fields.Time(walk, "pausedUntil", fields.Placed, fields.Setting, &w.PausedUntil)
		fields.Text(walk, "offReason", fields.Placed, fields.Guarded, &w.OffReason)
		fields.Time(walk, "offAt", fields.Placed, 0, &w.OffAt)
		fields.Time(walk, "provenAt", fields.Placed, 0, &w.ProvenAt)
		fields.Time(walk, "failingSince", fields.Placed, 0, &w.FailingSince)
		fields.Text(walk, "failingEvent", fields.Placed, 0, &w.FailingEvent)
		fields.Bool(walk, "failedAgain", fields.Placed, 0, &w.FailedAgain)
		fields.Time(walk, "warnedAt", fields.Placed, 0, &w.WarnedAt)
		fields.Formatted(walk, "secret", fields.Placed, fields.Value|fields.Sent, &w.Secret, signing.Secret.Reveal, nil)
		fields.Time(walk, "createdAt", fields.Placed, 0, &w.CreatedAt)
		fields.Formatted(walk, "previousSecret", fields.Placed, fields.Guarded, &w.PreviousSecret, signing.Secret.Reveal, nil)
	}
	fields.Number(walk, "threshold", 2, fields.Setting|fields.Created, &w.Threshold)
	fields.Time(walk, "previousSecretExpiresAt", 4, fields.Guarded, &w.PreviousSecretExpiresAt)
	fields.Texts(walk, "pastEvents", 6, fields.Guarded, &w.PastEvents)
	fields.FormattedTexts(walk, "resources", 9, fields.Setting|fields.Created, &w.Resources, auth.Resources.Names, auth.ParseResources)
	fields.Texts(walk, "eventScopes", 19, fields.Setting, &w.EventScopes)
	fields.FormattedTexts(walk, "headers", 11, fields.Setting|fields.Created|fields.Sent, &w.Headers, headerTexts, parseHeaders)
	fields.Number(walk, "secretsVersion", 12, fields.Tagged, &w.SecretsVersion)
	fields.Texts(walk, "signatures", 17, fields.Setting|fields.Created|fields.Sent, &w.Signatures)
	if !walk.Packed() {
		if walk.Copies() {
			w.Headers = slices.Clone(w.Headers)
		}
		fields.Formatted(walk, "headerSecrets", fields.Placed, fields.Value|fields.Sent, &w.Headers, headerSecrets, nil)
	}
}
