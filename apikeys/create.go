package apikeys

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/scopes"
)

// CreateParams says what key to create.
type CreateParams struct {
	// Name is 1 to 128 characters, at least one of them visible, without space around
	// them; none of them a control character, a line or paragraph separator, a control
	// of the direction of writing or U+200B; joiners only between visible ones.
	Name   string
	Scopes scopes.Set // at least one

	// ExpiresAt is when the key dies, counted to the millisecond; it must be in
	// the future and before the year 10000 in UTC. Zero: never.
	ExpiresAt time.Time

	// IdempotencyKey makes it safe to call Create again, for 24 hours: 1 to 128
	// visible ASCII characters that the account uses for this creation alone.
	// Empty: each call creates a key.
	IdempotencyKey string

	// First creates the key only if the account has none, dead ones included; otherwise
	// Create returns [ErrNotFirst]. A host sets it for the key that it makes at each of
	// its starts, or at a sign-up that may be sent twice: of several such calls at once,
	// also on several nodes, one creates the key.
	First bool

	// By is the value that asks for the key, see [KeyService.Credential]: if it is deleted or
	// rotated before the key is created, none is, and Create returns
	// [auth.ErrCredentialChanged]. Zero: the host asks.
	By auth.Credential

	// If is asked before the key is stored. Where an earlier call with the same
	// IdempotencyKey created it, If is asked once more, about the key as it is now.
	If Condition
}

// CredentialOf returns the Credential of a value of this package's form that was verified as
// p. [KeyService.Credential] knows imported ones as well.
func CredentialOf(token string, p auth.Principal) auth.Credential {
	return auth.NewCredential(p.KeyID, hashOf(token).Sum, p.Replaced)
}

// Create makes a key for the account and returns it with its token, which
// cannot be had again. An account is any string of 1 to 128 bytes of UTF-8
// without control characters. Whether the caller may create such a key is for
// params.If to decide. [ErrLimit] if the account has [Config.MaxPerAccount] keys;
// [ErrShareLimit] if params.By is of a key that cannot manage all keys of the account, and API keys
// have created half as many; [ErrNotFirst] if it has any and params.First is set;
// [ErrIdempotencyKeys] if it has used ten times as many idempotency keys in 24 hours.
//
// If the account has used params.IdempotencyKey before, no key is created: for the same
// params Create returns the key created then, as it is now, with the zero Token;
// [ErrCreatedThenDeleted] if it was deleted; for other params [ErrIdempotencyMismatch].
// Of several such calls at once one creates the key.
func (s *KeyService) Create(ctx context.Context, account string, params CreateParams) (Key, Token, error) {
	now := s.now().UTC().Truncate(time.Millisecond)
	if err := checkAccount(account); err != nil {
		return Key{}, Token{}, err
	}
	if wrong := s.validate(&params, now); len(wrong) > 0 {
		return Key{}, Token{}, wrong[0]
	}
	params.ExpiresAt = params.ExpiresAt.UTC().Truncate(time.Millisecond)
	token := newToken(s.prefix)
	key := Key{
		ID:        s.ids.New(id.Key, now),
		Account:   account,
		Name:      params.Name,
		Scopes:    params.Scopes,
		CreatedAt: now,
		ExpiresAt: params.ExpiresAt,
		CreatedBy: creator(ctx, params.By),
		Hash:      token.Hash(),
		Hint:      token.Hint(),
	}
	if err := params.If.ask(Key{}, key); err != nil {
		return Key{}, Token{}, fmt.Errorf("create API key: %w", err)
	}
	fingerprint, maxCount := params.fingerprint(), max(s.maxCount, 0)
	if params.First {
		maxCount = 1
	}
	entry := s.entry(ctx, audit.KeyCreated, &key)
	entry.Until = key.ExpiresAt
	share := s.share(params.By)
	err := s.store.CreateKey(ctx, key, CreateOptions{
		MaxCount:           maxCount,
		IdempotencyKey:     params.IdempotencyKey,
		Fingerprint:        fingerprint,
		IdempotencyTTL:     input.IdempotencyTTL,
		MaxIdempotencyKeys: input.MaxIdempotencyKeys(s.maxCount, params.By.IsZero(), params.By.Limited),
		By:                 params.By,
		Share:              share,
		AuditEntry:         entry,
	})
	if err == nil {
		s.observer.Changed(&entry)
	}
	if duplicate, ok := errors.AsType[*DuplicateRequestError](err); ok {
		key, err = s.replay(ctx, account, duplicate, fingerprint)
		if err == nil {
			err = params.If.ask(key, key)
		}
		token = Token{}
	}
	switch {
	case errors.Is(err, ErrLimit) && params.First:
		err = ErrNotFirst
	case errors.Is(err, ErrLimit):
		err = &LimitError{s.maxCount, ErrLimit}
	case errors.Is(err, ErrShareLimit):
		err = &LimitError{share.Max, ErrShareLimit}
	}
	if err != nil {
		return Key{}, Token{}, fmt.Errorf("create API key: %w", err)
	}
	return key, token, nil
}

// creator returns who creates a key: the key of by, or else the actor of ctx.
func creator(ctx context.Context, by auth.Credential) audit.Actor {
	if !by.IsZero() {
		return audit.Actor{Kind: audit.ActorKey, ID: by.KeyID}
	}
	actor := audit.ActorFrom(ctx)
	return audit.Actor{Kind: actor.Kind, ID: actor.ID}
}

// replay returns the key that an earlier request with the same idempotency key created,
// or ErrIdempotencyMismatch if its parameters differ.
func (s *KeyService) replay(ctx context.Context, account string, before *DuplicateRequestError, fingerprint [sha256.Size]byte) (Key, error) {
	if before.Fingerprint != fingerprint {
		return Key{}, ErrIdempotencyMismatch
	}
	uses := s.uses.unwritten()
	key, err := s.store.KeyByID(ctx, account, before.ID)
	if errors.Is(err, ErrNotFound) {
		return Key{}, ErrCreatedThenDeleted
	}
	return s.shown(key, uses), err
}

// Validate returns what Create would refuse params for, a field each: for forms that
// show all that is wrong at once. Create returns the first of them.
func (s *KeyService) Validate(params CreateParams) (wrong []*ValidationError) {
	return s.validate(&params, s.now())
}

func (s *KeyService) validate(p *CreateParams, now time.Time) (wrong []*ValidationError) {
	refuse := func(err error) {
		if rule, ok := errors.AsType[*ValidationError](err); ok {
			wrong = append(wrong, rule)
		}
	}
	refuse(checkName(p.Name))
	known := s.scopes.Resolve(p.Scopes)
	switch unknown := known.Unknown(); {
	case len(unknown) > 0:
		refuse(invalid("scopes", fmt.Sprintf("must be declared; unknown scope %.32q", unknown[0])))
	case known.IsEmpty():
		refuse(invalid("scopes", "must name at least one scope"))
	}
	refuse(checkExpiry(p.ExpiresAt, now))
	if reason := input.IdempotencyKey(p.IdempotencyKey); reason != "" {
		refuse(invalid("Idempotency-Key", reason))
	}
	return wrong
}

// checkExpiry checks an expiry, which is stored to the millisecond.
func checkExpiry(at, now time.Time) error {
	switch {
	case at.IsZero():
	case !at.Truncate(time.Millisecond).After(now):
		return invalid("expiresAt", "must be in the future")
	case at.UTC().Year() > 9999:
		return invalid("expiresAt", "must be before the year 10000")
	}
	return nil
}

// fingerprint stands for what is asked for by params that were checked.
func (p *CreateParams) fingerprint() [sha256.Size]byte {
	return input.Fingerprint(p.Name, strings.Join(p.Scopes.Names(), " "), p.ExpiresAt.Format(time.RFC3339Nano))
}
