package apikeys

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/notices"
)

// notice returns the notice of an action at a key. Its id is made when it is called: where
// the order matters, within the store's step.
func (s *KeyService) notice(ctx context.Context, account string, action notices.Action, keyID string) notices.Notice {
	n := notices.Of(ctx, account, action, notices.Target{Kind: notices.TargetKey, ID: keyID})
	n.At = s.now().UTC().Truncate(time.Millisecond)
	n.ID = s.noticeIDs.New(id.Notice, n.At)
	n.Pending = s.notify
	return n
}

// changeNotice returns the notice of a change of a key, or the zero Notice if it is as it was.
func (s *KeyService) changeNotice(ctx context.Context, before, after *Key) notices.Notice {
	if before.Hash != after.Hash {
		n := s.notice(ctx, after.Account, notices.KeyRotated, after.ID)
		n.Until = after.PreviousExpiresAt
		return n
	}
	changed := before.changed(after)
	if len(changed) == 0 {
		return notices.Notice{}
	}
	n := s.notice(ctx, after.Account, notices.KeyChanged, after.ID)
	n.Changed = changed
	return n
}

// changed returns the names of the fields that after has another value of.
func (k *Key) changed(after *Key) (fields []string) {
	if k.Name != after.Name {
		fields = append(fields, "name")
	}
	if k.Scopes != after.Scopes {
		fields = append(fields, "scopes")
	}
	if !k.ExpiresAt.Equal(after.ExpiresAt) {
		fields = append(fields, "expiresAt")
	}
	return fields
}
