package webhooks

import (
	"time"

	"github.com/storageapi/storageapi/signing"
)

// previousSecretAt returns the previous secret of w if it still signs at now, or else the zero
// Secret.
func previousSecretAt(w *Webhook, now time.Time) signing.Secret {
	if now.Before(w.PreviousSecretExpiresAt) {
		return w.PreviousSecret
	}
	return signing.Secret{}
}

// dropExpired removes the previous secret and the pause once they have expired.
func dropExpired(w *Webhook, now time.Time) {
	if previousSecretAt(w, now).IsZero() {
		w.PreviousSecret, w.PreviousSecretExpiresAt = signing.Secret{}, time.Time{}
	}
	if !w.Paused(now) {
		w.PausedUntil = time.Time{}
	}
}
