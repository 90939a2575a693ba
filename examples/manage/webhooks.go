package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/storageapi/storageapi/auth"
)

// A webhook is a webhook in the API's JSON format.
type webhook struct {
	ID                      string     `json:"id"`
	URL                     string     `json:"url"`
	Events                  []string   `json:"events"`
	Active                  bool       `json:"active"`
	Secret                  string     `json:"secret"` // only in responses to a creation or rotation
	CreatedAt               time.Time  `json:"createdAt"`
	BalanceThreshold        *string    `json:"balanceThreshold"` // in SUI
	OffReason               *string    `json:"offReason"`
	FailingSince            *time.Time `json:"failingSince"`
	PreviousSecretExpiresAt *time.Time `json:"previousSecretExpiresAt"`
}

// An attempt is one try to deliver an event.
type attempt struct {
	Number     int       `json:"number"`
	StartedAt  time.Time `json:"startedAt"`
	DurationMS float64   `json:"durationMs"`
	Status     *int      `json:"status"`
	ErrorClass *string   `json:"errorClass"`
	Error      *string   `json:"error"`
	Response   *string   `json:"response"`
}

const webhooksPath = "/v2/notifications/webhooks"

func manageWebhooks(ctx context.Context, out io.Writer, admin client, receiver *receiver) error {
	fmt.Fprintln(out, "Create a webhook and test it:")
	var made webhook
	wanted := map[string]any{"url": receiver.url, "events": []string{"balance.low"}, "balanceThreshold": "12.5"}
	if _, err := admin.call(ctx, "POST", webhooksPath, request{body: wanted, idempotencyKey: "hook-1"}, &made); err != nil {
		return err
	}
	if err := receiver.trust(made.Secret); err != nil {
		return err
	}
	path := webhooksPath + "/" + made.ID
	if err := test(ctx, out, admin, path); err != nil {
		return err
	}

	fmt.Fprintln(out, "Rotate its secret. For an hour both secrets sign, and the receiver, which still has the old one, verifies:")
	var rotated webhook
	if _, err := admin.call(ctx, "POST", path+"/rotate-secret", request{body: map[string]int{"graceSeconds": 3600}}, &rotated); err != nil {
		return err
	}
	if err := test(ctx, out, admin, path); err != nil {
		return err
	}
	if err := receiver.trust(rotated.Secret); err != nil {
		return err
	}
	if err := test(ctx, out, admin, path); err != nil {
		return err
	}

	fmt.Fprintln(out, "Change what it receives; null takes the threshold away:")
	tag, err := admin.call(ctx, "GET", path, request{}, nil)
	if err != nil {
		return err
	}
	var changed webhook
	change := map[string]any{"events": []string{"balance.low", "files.expiring"}, "balanceThreshold": nil}
	if _, err := admin.call(ctx, "PATCH", path, request{body: change, ifMatch: tag}, &changed); err != nil {
		return err
	}
	fmt.Fprintf(out, "  %v, a threshold: %v\n", changed.Events, changed.BalanceThreshold != nil)

	fmt.Fprintln(out, "Nobody subscribes to tests, nor sends events into private networks:")
	_, err = admin.call(ctx, "PATCH", path, request{body: map[string]any{"events": []string{"webhook.test"}}}, nil)
	if err := refused(out, err, auth.CodeValidation); err != nil {
		return err
	}
	_, err = admin.call(ctx, "PATCH", path, request{body: map[string]any{"url": "https://192.168.1.1/hooks"}}, nil)
	if err := refused(out, err, auth.CodeValidation); err != nil {
		return err
	}
	_, err = admin.call(ctx, "DELETE", path, request{ifMatch: "*"}, nil)
	return err
}

// test sends a test event to the webhook at path and prints the result.
func test(ctx context.Context, out io.Writer, c client, path string) error {
	var tested struct {
		ID      string  `json:"id"`
		Attempt attempt `json:"attempt"`
	}
	if _, err := c.call(ctx, "POST", path+"/test", request{}, &tested); err != nil {
		return err
	}
	if a := tested.Attempt; a.Error != nil {
		return fmt.Errorf("the test event failed: %s", *a.Error)
	}
	fmt.Fprintf(out, "  the receiver answered %s with %d\n", tested.ID, *tested.Attempt.Status)
	return nil
}
