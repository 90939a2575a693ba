package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/client"
)

func manageWebhooks(ctx context.Context, out io.Writer, admin *client.Client, receiver *receiver) error {
	fmt.Fprintln(out, "Create a webhook and test it:")
	made, err := admin.CreateWebhook(ctx, client.CreateWebhook{URL: receiver.url, Events: []string{"balance.low"}, BalanceThreshold: "12.5"})
	if err != nil {
		return err
	}
	if err := receiver.trust(made.Secret.Reveal()); err != nil {
		return err
	}
	if err := test(ctx, out, admin, made.ID); err != nil {
		return err
	}

	fmt.Fprintln(out, "Rotate its secret. For an hour both secrets sign, and the receiver, which still has the old one, verifies:")
	rotated, err := admin.RotateWebhookSecret(ctx, made.ID, client.Rotation{GraceSeconds: client.Some(3600)})
	if err != nil {
		return err
	}
	if err := test(ctx, out, admin, made.ID); err != nil {
		return err
	}
	if err := receiver.trust(rotated.Secret.Reveal()); err != nil {
		return err
	}
	if err := test(ctx, out, admin, made.ID); err != nil {
		return err
	}

	fmt.Fprintln(out, "Change what it receives; null takes the threshold away:")
	change := client.UpdateWebhook{Events: client.Some([]string{"balance.low", "files.expiring"}), BalanceThreshold: client.Null[string]()}
	changed, err := admin.UpdateWebhook(ctx, made.ID, change, client.IfMatch(rotated.ETag))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %v, a threshold: %v\n", changed.Events, changed.BalanceThreshold != "")

	fmt.Fprintln(out, "Nobody subscribes to tests, nor sends events into private networks:")
	_, err = admin.UpdateWebhook(ctx, made.ID, client.UpdateWebhook{Events: client.Some([]string{"webhook.test"})})
	if err := refused(out, err, auth.CodeValidation); err != nil {
		return err
	}
	_, err = admin.UpdateWebhook(ctx, made.ID, client.UpdateWebhook{URL: client.Some("https://192.168.1.1/hooks")})
	if err := refused(out, err, auth.CodeValidation); err != nil {
		return err
	}
	return admin.DeleteWebhook(ctx, made.ID, client.IfMatch("*"))
}

// test sends a test event to the webhook and prints the result.
func test(ctx context.Context, out io.Writer, c *client.Client, webhookID string) error {
	tested, err := c.TestWebhook(ctx, webhookID, "")
	if err != nil {
		return err
	}
	if text := tested.Attempt.Error; text != "" {
		return errors.New("the test event failed: " + text)
	}
	fmt.Fprintf(out, "  the receiver answered %s with %d\n", tested.ID, tested.Attempt.Status)
	return nil
}
