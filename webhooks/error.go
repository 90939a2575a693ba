package webhooks

import (
	"errors"

	"github.com/storageapi/storageapi/store/driver"
)

// ErrRecovering is returned by [WebhookService.Recover] while another recovery of the webhook is
// running.
var ErrRecovering = driver.ErrRecovering

// ErrBodyGone is returned by [WebhookService.Body] if the event exists, but its body is no longer
// kept or never was.
var ErrBodyGone = errors.New("the body of the event is no longer stored")

// ErrHeld is returned by [WebhookService.SendTest] if the webhook is on hold, see [Webhook.Held].
// It must be released first.
var ErrHeld = errors.New("webhook is on hold")
