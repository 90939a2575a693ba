package apikeys

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

// CreateParams are the parameters of a new key.
type CreateParams struct {
	// Name is 1 to 128 characters, at least one of them visible, without surrounding
	// spaces. Control characters, line and paragraph separators, bidirectional controls
	// and U+200B are not allowed; joiners are allowed only between visible characters.
	Name   string
	Scopes scopes.Set // at least one

	// Resources limits the key to resources of the host: 1 to 64 names of 1 to 128 visible ASCII
	// characters, compared exactly. It can never be changed. Nil means no limit.
	Resources []string

	// ExpiresAt is when the key expires, to the millisecond. It must be in the future
	// and before the year 10000 in UTC. Zero means never, or as late as [Config.MaxLifetime] allows.
	ExpiresAt time.Time

	// AllowedNetworks are the networks from which the key can be used: at most 32, in CIDR
	// notation, or single addresses; see [auth.ParseNetworks]. Requests from other addresses are
	// answered like requests with an unknown key. storageapi.Config.ClientAddress determines the
	// address; set it behind a proxy, because otherwise all requests have the proxy's address.
	// Empty means any address.
	AllowedNetworks []string

	// RateLimit is the maximum number of requests per minute with the key, up to 1,000,000. Each
	// process counts separately, and admits up to a minute's requests at once. The [auth.RateLimit]
	// applies as well, so the lower of the two limits decides. 0 means that only the auth.RateLimit
	// applies.
	RateLimit uint64

	// Labels are for the host and the key's owners, who find keys by them; they never affect a
	// decision. At most 16 labels with names of 1 to 64 characters, values of up to 256, and 4 KiB in
	// all. Names have no "="; neither names nor values have control characters or outer spaces.
	Labels map[string]string

	// IdempotencyKey makes it safe to repeat Create for 24 hours. It is 1 to 128 visible ASCII
	// characters and unique to this creation within the account. If empty, each call creates a key.
	IdempotencyKey string

	// First makes Create return [ErrNotFirst] if the account already has a key, even an expired
	// one. Set First where the call may be repeated, such as at each start of the host or when a
	// sign-up form is sent twice. If several calls run concurrently, even on several nodes, only
	// one of them creates a key.
	First bool

	// By is the credential of the request, see [KeyService.Credential]. If its key is deleted or
	// rotated before the new key is stored, Create stores nothing and returns
	// [auth.ErrCredentialChanged]. A zero By means that the host itself creates the key.
	By auth.Credential

	// If is called before the key is stored. If an earlier call with the same
	// IdempotencyKey created the key, If is called again, with the key's current state.
	If Condition
}

// Create creates a key for the account and returns it with its token, which cannot be
// retrieved later. An account is any string of 1 to 128 bytes of UTF-8 without control
// characters. params.If decides whether the caller may create the key.
//
// Create returns [apierr.ErrLimit], in a [*apierr.LimitError], if the account already has
// [Config.MaxPerAccount] keys, or half as many if params.By is limited. It returns [ErrNotFirst] if
// params.First is set and the account has a key. It returns [apierr.ErrIdempotencyKeys] if the
// account has used too many idempotency keys in 24 hours: 10 times MaxPerAccount, 20 times if the
// host creates the key, 5 times if params.By is limited.
//
// If params.IdempotencyKey was used before in the account, Create creates nothing. If the params
// are the same, it returns the original key in its current state, with the zero Token, or
// [apierr.ErrCreatedThenDeleted] if that key was deleted. If they differ, it returns
// [apierr.ErrIdempotencyMismatch]. If several such calls run concurrently, only one creates a key.
func (s *KeyService) Create(ctx context.Context, account string, params CreateParams) (Key, Token, error) {
	now := s.now().UTC().Truncate(time.Millisecond)
	if err := input.Account(account); err != nil {
		return Key{}, Token{}, err
	}
	if err := input.JoinInvalid(apierr.ValidationErrors(s.validate(&params, now))); err != nil {
		return Key{}, Token{}, err
	}
	token := newToken(s.prefix)
	key := params.key()
	key.ID, key.Account, key.CreatedAt = s.ids.New(id.Key, now), account, now
	key.CreatedBy, key.Hash, key.Hint = creator(ctx, params.By), token.Hash(), token.Hint()
	fingerprint := fields.Sum((*listed.Key)(&key), fields.Created)
	if s.lifetime.max > 0 && key.ExpiresAt.IsZero() {
		key.ExpiresAt = now.Add(s.lifetime.max)
	}
	if err := params.If.ask(Key{}, key); err != nil {
		return Key{}, Token{}, fmt.Errorf("create API key: %w", err)
	}
	limit := apierr.LimitError{Resource: "API keys", Limit: s.maxCount, Limited: params.By.Limited}
	if limit.Limited {
		limit.Limit = input.LimitedCount(s.maxCount)
	}
	maxCount := limit.Limit
	if params.First {
		maxCount = 1
	}
	entry := s.entry(ctx, audit.KeyCreated, &key)
	entry.Until = key.ExpiresAt
	err := s.store.CreateKey(ctx, key, driver.CreateOptions{
		MaxCount:           max(maxCount, 0),
		IdempotencyKey:     params.IdempotencyKey,
		Fingerprint:        fingerprint,
		IdempotencyTTL:     input.IdempotencyTTL,
		MaxIdempotencyKeys: input.MaxIdempotencyKeys(s.maxCount, params.By.IsZero(), params.By.Limited),
		By:                 params.By,
		AuditEntry:         entry,
	})
	if err == nil {
		s.observer.Changed(&entry)
	}
	if duplicate, ok := errors.AsType[*driver.DuplicateRequestError](err); ok {
		key, err = s.replay(ctx, account, duplicate, fingerprint)
		if err == nil {
			err = params.If.ask(key, key)
		}
		token = Token{}
	}
	switch {
	case errors.Is(err, apierr.ErrLimit) && params.First:
		err = ErrNotFirst
	case errors.Is(err, apierr.ErrLimit):
		err = &limit
	}
	if err != nil {
		return Key{}, Token{}, fmt.Errorf("create API key: %w", err)
	}
	return key, token, nil
}

// key returns a key with the parameters, which must be valid.
func (p *CreateParams) key() Key {
	resources, _ := auth.ParseResources(p.Resources)
	networks, _ := auth.ParseNetworks(p.AllowedNetworks)
	return Key{
		Name: p.Name, Scopes: p.Scopes, Resources: resources, ExpiresAt: p.ExpiresAt.UTC().Truncate(time.Millisecond),
		Labels: driver.LabelsOf(p.Labels), AllowedNetworks: networks, RateLimit: p.RateLimit,
	}
}

// creator returns the creator of a new key: the key that by identifies, or the actor of ctx if by
// is zero.
func creator(ctx context.Context, by auth.Credential) audit.Actor {
	if !by.IsZero() {
		return audit.Actor{Kind: audit.ActorKey, ID: by.KeyID}
	}
	actor := audit.ActorFrom(ctx)
	return audit.Actor{Kind: actor.Kind, ID: actor.ID}
}

// replay returns the key that an earlier request with the same idempotency key created,
// or ErrIdempotencyMismatch if its parameters differ.
func (s *KeyService) replay(ctx context.Context, account string, before *driver.DuplicateRequestError, fingerprint [sha256.Size]byte) (Key, error) {
	if before.Fingerprint != fingerprint {
		return Key{}, apierr.ErrIdempotencyMismatch
	}
	uses := s.uses.unwritten()
	key, err := s.store.KeyByID(ctx, account, before.ID)
	if errors.Is(err, apierr.ErrNotFound) {
		return Key{}, apierr.ErrCreatedThenDeleted
	}
	return s.shown(key, uses), err
}

// Validate returns the validation errors that params would cause in Create, at most one per field.
func (s *KeyService) Validate(params CreateParams) (wrong []*apierr.ValidationError) {
	return s.validate(&params, s.now())
}

func (s *KeyService) validate(p *CreateParams, now time.Time) (wrong []*apierr.ValidationError) {
	refuse := func(err error) {
		if rule, ok := errors.AsType[*apierr.ValidationError](err); ok {
			wrong = append(wrong, rule)
		}
	}
	refuse(checkName(p.Name))
	known := s.scopes.Resolve(p.Scopes)
	switch unknown := known.Unknown(); {
	case len(unknown) > 0:
		refuse(input.Invalid("scopes", fmt.Sprintf("must be declared; unknown scope %.32q", unknown[0])))
	case known.IsEmpty():
		refuse(input.Invalid("scopes", "must name at least one scope"))
	}
	offered := s.scopes.All()
	for scope := range known.All() {
		if !offered.Has(scope) {
			refuse(input.Invalid("scopes", fmt.Sprintf("must be offered; %s is hidden by Config.HideScopes", scope)))
			break
		}
	}
	if _, err := auth.ParseResources(p.Resources); err != nil {
		refuse(input.Invalid("resources", err.Error()))
	}
	refuse(checkExpiry(p.ExpiresAt, now))
	if _, err := auth.ParseNetworks(p.AllowedNetworks); err != nil {
		refuse(input.Invalid("allowedNetworks", err.Error()))
	}
	if p.RateLimit > maxRateLimit {
		refuse(input.Invalid("rateLimit", fmt.Sprintf("must be at most %d requests per minute", maxRateLimit)))
	}
	refuse(s.lifetime.check(p.ExpiresAt, now))
	labels := make(map[string]*string)
	for name, value := range p.Labels {
		labels[name] = &value
	}
	_, err := mergeLabels("", labels)
	refuse(err)
	if reason := input.IdempotencyKey(p.IdempotencyKey); reason != "" {
		refuse(input.Invalid("Idempotency-Key", reason))
	}
	return wrong
}

const maxRateLimit = 1_000_000 // requests per minute

// checkExpiry validates an expiry. Expiries are stored to the millisecond.
func checkExpiry(at, now time.Time) error {
	switch {
	case at.IsZero():
	case !at.Truncate(time.Millisecond).After(now):
		return input.Invalid("expiresAt", "must be in the future")
	case at.UTC().Year() > 9999:
		return input.Invalid("expiresAt", "must be before the year 10000")
	}
	return nil
}
