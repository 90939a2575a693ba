package apikeys

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

// RecordScopes implements [auth.Recorder]. The scopes are written with the last use of the key. They
// are recorded once between two writes, so recording the same scopes again is fast.
func (s *KeyService) RecordScopes(p *auth.Principal, used scopes.Set) {
	const odd = 0x9e3779b97f4a7c15 // spreads the numbers of scopes over all bits
	order, names := used.Pack()
	hash := maphash.String(s.uses.seed, p.KeyID) ^ order*odd
	if names != "" {
		hash ^= maphash.String(s.uses.seed, names) * odd
	}
	if !s.uses.isNew(hash, uint16(s.uses.writes.Load())) {
		return
	}
	if activity := driver.ActivityOf(p.Scopes, used, s.now()); activity != "" {
		s.uses.add(&driver.KeyUse{Account: p.Account, ID: p.KeyID, Activity: activity})
	}
}

// RecordRefusal implements [auth.Recorder]. The refusal is written with the last use of the key.
func (s *KeyService) RecordRefusal(account, keyID, address string, refusal auth.RefusedRequest) {
	refusal.At = s.now().UTC().Truncate(time.Millisecond)
	refusal.Network = driver.NetworkOf(auth.ParseAddress(address))
	s.uses.add(&driver.KeyUse{Account: account, ID: keyID}, refusal)
}

// Refusals returns the last refused requests with the account's key, at most 100, the latest first,
// or [apierr.ErrNotFound]. Use it to answer "why was I refused?". Refusals by other processes appear
// within about a minute. While very many requests are refused, some may be missing.
func (s *KeyService) Refusals(ctx context.Context, account, keyID string) ([]auth.RefusedRequest, error) {
	key, err := s.Get(ctx, account, keyID)
	return key.Refusals(), err
}
