package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/client"
)

func manageKeys(ctx context.Context, out io.Writer, base string, admin *client.Client) error {
	fmt.Fprintln(out, "Create a key. To try again, use the same idempotency key:")
	wanted := client.CreateKey{Name: "deploy", Scopes: []string{"files:read", "account:read"}}
	made, err := admin.CreateKey(ctx, wanted, client.IdempotencyKey("deploy-1"))
	if err != nil {
		return err
	}
	again, err := admin.CreateKey(ctx, wanted, client.IdempotencyKey("deploy-1"))
	if !errors.Is(err, client.ErrCreatedBefore) {
		return fmt.Errorf("want ErrCreatedBefore, got %w", err)
	}
	fmt.Fprintf(out, "  %s, whose value was shown %v; and again %s, without it: %v\n", made.ID, !made.Value.IsZero(), again.ID, again.Value.IsZero())
	wanted.Name = "another"
	_, err = admin.CreateKey(ctx, wanted, client.IdempotencyKey("deploy-1"))
	if err := refused(out, err, auth.CodeConflict); err != nil {
		return err
	}

	fmt.Fprintln(out, "Rename it, if nobody else changed it since it was read:")
	read, err := admin.Key(ctx, made.ID)
	if err != nil {
		return err
	}
	renamed, err := admin.UpdateKey(ctx, made.ID, client.UpdateKey{Name: client.Some("deploy, EU")}, client.IfMatch(read.ETag))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %q\n", renamed.Name)
	_, err = admin.UpdateKey(ctx, made.ID, client.UpdateKey{Name: client.Some("deploy, US")}, client.IfMatch(read.ETag))
	if err := refused(out, err, auth.CodePreconditionFailed); err != nil {
		return err
	}

	fmt.Fprintln(out, "Rotate it, by itself. The old value lives on for an hour:")
	before, err := client.New(base, made.Value.Reveal(), client.Options{})
	if err != nil {
		return err
	}
	rotated, err := before.RotateKey(ctx, made.ID, client.Rotation{GraceSeconds: client.Some(3600)})
	if err != nil {
		return err
	}
	for key, err := range before.Keys(ctx, client.KeyQuery{}) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  %s %q, old value live: %v\n", key.ID, key.Name, key.Previous != nil)
	}

	fmt.Fprintln(out, "Rotate it at once, because the value has leaked; then delete it:")
	if rotated, err = admin.RotateKey(ctx, made.ID, client.Rotation{GraceSeconds: client.Some(0)}); err != nil {
		return err
	}
	_, err = before.Key(ctx, made.ID)
	if err := refused(out, err, auth.CodeUnauthorized); err != nil {
		return err
	}
	after, err := client.New(base, rotated.Value.Reveal(), client.Options{})
	if err != nil {
		return err
	}
	if err := after.DeleteKey(ctx, made.ID); err != nil { // a key may delete itself
		return err
	}
	_, err = admin.Key(ctx, made.ID)
	return refused(out, err, auth.CodeNotFound)
}

// refused prints err and returns nil if err is the API's refusal with the given code.
func refused(out io.Writer, err error, code string) error {
	refusal, ok := errors.AsType[*client.Error](err)
	if !ok || refusal.Code != code {
		return fmt.Errorf("want %s, got %w", code, err)
	}
	fmt.Fprintf(out, "  refused: %v\n", refusal)
	return nil
}
