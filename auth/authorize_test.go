package auth_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

const (
	allow = true
	deny  = false
)

const self = "key_caller"

// The callers in the tests: caller uses the current value of its key, and replaced a value that a
// rotation has replaced.
type (
	principaler interface {
		principal(*testing.T) auth.Principal
	}
	caller   presented
	replaced presented

	presented struct {
		scopes  string
		expires time.Time
	}
)

func (c caller) principal(t *testing.T) auth.Principal {
	return auth.Principal{Account: "acct_1", KeyID: self, Scopes: set(t, c.scopes), ExpiresAt: c.expires}
}

func (r replaced) principal(t *testing.T) auth.Principal {
	p := caller(r).principal(t)
	p.Replaced = true
	return p
}

func TestLeastPrivilege(t *testing.T) {
	const (
		readFiles  = "files:read"
		writeFiles = "files:write"
		readAcct   = "account:read"
		both       = "account:read files:read"
		reversed   = "files:read account:read"
		nothing    = ""
		all        = "*"
	)
	var (
		never = time.Time{}
		soon  = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		later = soon.Add(time.Millisecond)
		zoned = soon.In(time.FixedZone("", 7200))
	)
	type target struct {
		id      string
		scopes  string
		expires time.Time
	}
	anything := (*target)(nil) // the check before the body is read

	tests := []struct {
		caller principaler
		action auth.Action
		target *target
		want   bool
	}{
		// Reading keys or webhooks requires account:read.
		{caller{readAcct, never}, auth.ReadKeys, anything, allow},
		{caller{readAcct, soon}, auth.ReadKeys, anything, allow},
		{caller{all, never}, auth.ReadKeys, anything, allow},
		{caller{readFiles, never}, auth.ReadKeys, anything, deny},
		{caller{nothing, never}, auth.ReadKeys, anything, deny},
		{caller{readAcct, never}, auth.ReadKeys, &target{"key_other", all, never}, allow},
		{caller{writeFiles, never}, auth.ReadKeys, &target{self, writeFiles, never}, deny},
		{caller{readAcct, never}, auth.ReadWebhooks, anything, allow},
		{caller{readFiles, never}, auth.ReadWebhooks, anything, deny},
		{caller{nothing, never}, auth.ReadWebhooks, anything, deny},
		{caller{readAcct, never}, auth.ReadWebhooks, &target{"wh_1", readFiles, never}, allow},

		// Any key passes the check before the body is read, because the decision depends on the
		// target.
		{caller{readFiles, never}, auth.CreateKey, anything, allow},
		{caller{nothing, never}, auth.CreateKey, anything, allow},
		{caller{readFiles, never}, auth.UpdateKey, anything, allow},
		{caller{nothing, never}, auth.UpdateKey, anything, allow},
		{caller{readFiles, never}, auth.RotateKey, anything, allow},
		{caller{nothing, never}, auth.RotateKey, anything, allow},
		{caller{readFiles, never}, auth.DeleteKey, anything, allow},
		{caller{nothing, never}, auth.DeleteKey, anything, allow},

		// Creating a key requires all of its scopes …
		{caller{readFiles, never}, auth.CreateKey, &target{"", readFiles, never}, allow},
		{caller{both, never}, auth.CreateKey, &target{"", readFiles, never}, allow},
		{caller{both, never}, auth.CreateKey, &target{"", reversed, never}, allow},
		{caller{all, never}, auth.CreateKey, &target{"", all, never}, allow},
		{caller{readFiles, never}, auth.CreateKey, &target{"", both, never}, deny},
		{caller{readFiles, never}, auth.CreateKey, &target{"", readAcct, never}, deny},
		{caller{readFiles, never}, auth.CreateKey, &target{"", writeFiles, never}, deny},
		{caller{writeFiles, never}, auth.CreateKey, &target{"", readFiles, never}, deny},
		{caller{nothing, never}, auth.CreateKey, &target{"", readFiles, never}, deny},

		// … and an expiry no earlier than the new key's.
		{caller{readFiles, never}, auth.CreateKey, &target{"", readFiles, soon}, allow},
		{caller{readFiles, soon}, auth.CreateKey, &target{"", readFiles, soon}, allow},
		{caller{readFiles, soon}, auth.CreateKey, &target{"", readFiles, zoned}, allow},
		{caller{readFiles, later}, auth.CreateKey, &target{"", readFiles, soon}, allow},
		{caller{readFiles, soon}, auth.CreateKey, &target{"", readFiles, later}, deny},
		{caller{readFiles, soon}, auth.CreateKey, &target{"", readFiles, never}, deny},
		{caller{all, soon}, auth.CreateKey, &target{"", readFiles, never}, deny},

		// Updating a key requires both …
		{caller{both, never}, auth.UpdateKey, &target{"key_other", readFiles, never}, allow},
		{caller{both, later}, auth.UpdateKey, &target{"key_other", readFiles, soon}, allow},
		{caller{readFiles, never}, auth.UpdateKey, &target{"key_other", both, never}, deny},
		{caller{both, soon}, auth.UpdateKey, &target{"key_other", readFiles, later}, deny},
		{caller{both, soon}, auth.UpdateKey, &target{"key_other", readFiles, never}, deny},

		// … as does rotating one …
		{caller{both, never}, auth.RotateKey, &target{"key_other", readFiles, never}, allow},
		{caller{both, later}, auth.RotateKey, &target{"key_other", readFiles, soon}, allow},
		{caller{readFiles, never}, auth.RotateKey, &target{"key_other", both, never}, deny},
		{caller{both, soon}, auth.RotateKey, &target{"key_other", readFiles, later}, deny},
		{caller{both, soon}, auth.RotateKey, &target{"key_other", readFiles, never}, deny},

		// … and deleting one.
		{caller{both, never}, auth.DeleteKey, &target{"key_other", readFiles, never}, allow},
		{caller{both, later}, auth.DeleteKey, &target{"key_other", readFiles, soon}, allow},
		{caller{readFiles, never}, auth.DeleteKey, &target{"key_other", both, never}, deny},
		{caller{both, soon}, auth.DeleteKey, &target{"key_other", readFiles, later}, deny},
		{caller{both, soon}, auth.DeleteKey, &target{"key_other", readFiles, never}, deny},

		// A key may update and rotate itself, since it has its own scopes.
		{caller{readFiles, never}, auth.UpdateKey, &target{self, readFiles, never}, allow},
		{caller{readFiles, soon}, auth.UpdateKey, &target{self, readFiles, soon}, allow},
		{caller{readFiles, never}, auth.RotateKey, &target{self, readFiles, never}, allow},
		{caller{readFiles, soon}, auth.RotateKey, &target{self, readFiles, soon}, allow},

		// A replaced value cannot manage any key, not even one that expires earlier.
		{replaced{readFiles, soon}, auth.UpdateKey, anything, deny},
		{replaced{readFiles, soon}, auth.UpdateKey, &target{self, readFiles, never}, deny},
		{replaced{readFiles, soon}, auth.UpdateKey, &target{self, readFiles, soon}, deny},
		{replaced{readFiles, soon}, auth.RotateKey, &target{self, readFiles, never}, deny},
		{replaced{readFiles, soon}, auth.RotateKey, &target{self, readFiles, soon}, deny},
		{replaced{readFiles, soon}, auth.UpdateKey, &target{"key_other", readFiles, soon}, deny},
		{replaced{readFiles, soon}, auth.RotateKey, &target{"key_other", readFiles, zoned}, deny},
		{replaced{readFiles, soon}, auth.DeleteKey, &target{"key_other", readFiles, soon}, deny},
		{replaced{readFiles, soon}, auth.DeleteKey, &target{"key_other", readFiles, never}, deny},
		{replaced{readFiles, soon}, auth.CreateKey, &target{"", readFiles, never}, deny},
		{replaced{readFiles, soon}, auth.CreateKey, &target{"", readFiles, later}, deny},
		{replaced{readFiles, soon}, auth.CreateKey, &target{"", readFiles, soon}, deny},
		{replaced{readFiles, later}, auth.CreateKey, &target{"", readFiles, soon}, deny},
		{replaced{readFiles, later}, auth.UpdateKey, &target{"key_other", readFiles, soon}, deny},
		{replaced{readFiles, later}, auth.RotateKey, &target{"key_other", readFiles, soon}, deny},
		{replaced{readFiles, later}, auth.DeleteKey, &target{"key_other", readFiles, soon}, deny},
		{replaced{readFiles, later}, auth.CreateKey, &target{"", both, soon}, deny},

		// A replaced value cannot manage webhooks either, because they do not expire. It can read.
		{replaced{all, soon}, auth.CreateWebhook, anything, deny},
		{replaced{all, soon}, auth.UpdateWebhook, anything, deny},
		{replaced{all, soon}, auth.DeleteWebhook, anything, deny},
		{replaced{both, soon}, auth.CreateWebhook, &target{"", both, never}, deny},
		{replaced{both, soon}, auth.UpdateWebhook, &target{"wh_1", readFiles, never}, deny},
		{replaced{both, soon}, auth.DeleteWebhook, &target{"wh_1", readFiles, never}, deny},
		{replaced{readAcct, soon}, auth.ReadWebhooks, anything, allow},
		{replaced{readAcct, soon}, auth.ReadKeys, anything, allow},

		// A key may always delete itself, even with a replaced value.
		{caller{readFiles, never}, auth.DeleteKey, &target{self, readFiles, never}, allow},
		{replaced{readFiles, soon}, auth.DeleteKey, &target{self, readFiles, never}, allow},
		{replaced{readFiles, soon}, auth.DeleteKey, &target{self, readFiles, soon}, allow},
		{caller{nothing, soon}, auth.DeleteKey, &target{self, all, never}, allow},
		{caller{readFiles, soon}, auth.CreateKey, &target{self, readFiles, never}, deny},

		// Creating, updating or deleting a webhook requires the read scope behind each of its
		// events.
		{caller{readFiles, soon}, auth.CreateWebhook, &target{"", readFiles, never}, allow},
		{caller{readAcct, soon}, auth.CreateWebhook, &target{"", readAcct, never}, allow},
		{caller{both, soon}, auth.CreateWebhook, &target{"", reversed, never}, allow},
		{caller{readFiles, never}, auth.CreateWebhook, &target{"", both, never}, deny},
		{caller{readAcct, never}, auth.CreateWebhook, &target{"", readFiles, never}, deny},
		{caller{writeFiles, never}, auth.CreateWebhook, &target{"", readFiles, never}, deny},
		{caller{both, soon}, auth.UpdateWebhook, &target{"wh_1", both, never}, allow},
		{caller{readFiles, soon}, auth.UpdateWebhook, &target{"wh_1", readFiles, never}, allow},
		{caller{readAcct, never}, auth.UpdateWebhook, &target{"wh_1", both, never}, deny},
		{caller{readFiles, never}, auth.UpdateWebhook, &target{self, readAcct, never}, deny},
		{caller{both, soon}, auth.DeleteWebhook, &target{"wh_1", both, never}, allow},
		{caller{readAcct, never}, auth.DeleteWebhook, &target{"wh_1", both, never}, deny},
		{caller{readFiles, never}, auth.DeleteWebhook, &target{self, readAcct, never}, deny},

		// In the check before the body is read, the read scope of any event type is enough.
		{caller{readFiles, never}, auth.CreateWebhook, anything, allow},
		{caller{readAcct, never}, auth.CreateWebhook, anything, allow},
		{caller{writeFiles, never}, auth.CreateWebhook, anything, deny},
		{caller{nothing, never}, auth.CreateWebhook, anything, deny},
		{caller{readFiles, never}, auth.UpdateWebhook, anything, allow},
		{caller{readAcct, never}, auth.UpdateWebhook, anything, allow},
		{caller{writeFiles, never}, auth.UpdateWebhook, anything, deny},
		{caller{nothing, never}, auth.UpdateWebhook, anything, deny},
		{caller{readFiles, never}, auth.DeleteWebhook, anything, allow},
		{caller{readAcct, never}, auth.DeleteWebhook, anything, allow},
		{caller{writeFiles, never}, auth.DeleteWebhook, anything, deny},

		// An unknown action is refused.
		{caller{all, never}, "", anything, deny},
		{caller{all, never}, "grow wings", anything, deny},
		{caller{all, never}, "Read keys", anything, deny},
		{caller{all, never}, "delete account", &target{self, nothing, never}, deny},
	}
	for _, test := range tests {
		access := auth.Access{Action: test.action}
		if test.target != nil {
			access.Target = &auth.Target{ID: test.target.id, Scopes: set(t, test.target.scopes), ExpiresAt: test.target.expires}
		}
		err := auth.LeastPrivilege(t.Context(), test.caller.principal(t), access)
		if got := err == nil; got != test.want {
			t.Errorf("%T %+[1]v, %s %+v: allowed = %v, want %v", test.caller, test.action, test.target, got, test.want)
		}
		if err != nil && !errors.Is(err, auth.ErrForbidden) {
			t.Errorf("%s: err = %v, want ErrForbidden", test.action, err)
		}
	}
}

func TestLeastPrivilege_MoreScopesWouldAllow_NamesThem(t *testing.T) {
	soon := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	other := func(scopes string) *auth.Target { return &auth.Target{ID: "other_1", Scopes: set(t, scopes)} }
	for _, test := range []struct {
		caller caller
		action auth.Action
		target *auth.Target
		want   string // empty means no *ScopeError
	}{
		{caller{"files:read", soon}, auth.ReadKeys, nil, "account:read"},
		{caller{"files:read", soon}, auth.ReadAudit, nil, "account:read"},
		{caller{"files:write", soon}, auth.CreateWebhook, nil, "files:read account:read teams:read"},
		{caller{"files:read", soon}, auth.CreateWebhook, &auth.Target{Scopes: set(t, "account:read")}, "account:read"},
		{caller{"account:read", soon}, auth.UpdateWebhook, other("files:read"), "files:read"},
		{caller{"account:read", soon}, auth.ReadEvents, other("files:read"), "files:read"},
		{caller{"account:read", time.Time{}}, auth.DeleteKey, other("files:read secrets:read"), "files:read secrets:read"},
		{caller{"files:read", time.Time{}}, auth.CreateKey, &auth.Target{Scopes: set(t, "files:read files:write")}, "files:read files:write"},
		// More scopes would not help a key that expires too early.
		{caller{"files:read", soon}, auth.CreateKey, &auth.Target{Scopes: set(t, "files:read files:write")}, ""},
		// A caller without account:read does not learn the scopes of existing keys and webhooks.
		{caller{"files:read", time.Time{}}, auth.DeleteKey, other("secrets:read"), ""},
		{caller{"files:read", soon}, auth.DeleteWebhook, other("account:read"), "files:read account:read teams:read"},
		{caller{"*", soon}, "grow wings", nil, ""},
	} {
		access := auth.Access{Action: test.action, Target: test.target, EventScopes: scopes.Of(scopes.FilesRead, "teams:read")}
		err := auth.LeastPrivilege(t.Context(), test.caller.principal(t), access)
		var got string
		if missing, ok := errors.AsType[*auth.ScopeError](err); ok {
			got = missing.Required.String()
		}
		if got != test.want || !errors.Is(err, auth.ErrForbidden) {
			t.Errorf("%+v, %s %+v: %v requires %q, want %q", test.caller, test.action, test.target, err, got, test.want)
		}
	}
}

// The check without a target must not refuse an access that the check with a target would allow, or
// the request would be answered 403 instead of 201.
func TestLeastPrivilege_WithoutTarget_IsNoStricter(t *testing.T) {
	type action = auth.Action
	for _, a := range []action{
		auth.ReadKeys, auth.CreateKey, auth.UpdateKey, auth.RotateKey, auth.DeleteKey,
		auth.ReadWebhooks, auth.CreateWebhook, auth.UpdateWebhook, auth.DeleteWebhook,
	} {
		for caller := range scopes.Specified().All() {
			p := auth.Principal{KeyID: self, Scopes: scopes.Of(caller)}
			general := auth.LeastPrivilege(t.Context(), p, auth.Access{Action: a})
			for _, events := range []scopes.Set{
				scopes.Of(scopes.FilesRead), scopes.Of(scopes.AccountRead), scopes.Of(scopes.AccountRead, scopes.FilesRead),
			} {
				err := auth.LeastPrivilege(t.Context(), p, auth.Access{Action: a, Target: &auth.Target{Scopes: events}})
				if err == nil && general != nil {
					t.Errorf("%v may %s with %v, but is refused without a target", caller, a, events)
				}
			}
		}
	}
}

func TestAction_ReadOnly_IsTrueForReadsOnly(t *testing.T) {
	for action, want := range map[auth.Action]bool{
		auth.ReadKeys: true, auth.CreateKey: false, auth.UpdateKey: false, auth.RotateKey: false, auth.DeleteKey: false,
		auth.ReadWebhooks: true, auth.CreateWebhook: false, auth.UpdateWebhook: false, auth.DeleteWebhook: false,
		auth.ReadAudit: true, auth.ReadEvents: true, "": false,
	} {
		if got := action.ReadOnly(); got != want {
			t.Errorf("%q: got %v, want %v", action, got, want)
		}
	}
}

// set parses scopes separated by spaces; "*" means all scopes.
func set(t *testing.T, names string) scopes.Set {
	t.Helper()
	if names == "*" {
		return scopes.Specified()
	}
	parsed, err := new(scopes.Vocabulary).ParseSet(strings.Fields(names))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// A caller and a target that both lack an ID are not the same key.
func TestLeastPrivilege_KeyAndTargetWithoutID_RefusesDelete(t *testing.T) {
	caller := auth.Principal{Account: "acct", Scopes: scopes.Of(scopes.FilesRead)}
	access := auth.Access{Action: auth.DeleteKey, Target: &auth.Target{Scopes: scopes.Specified()}}
	if err := auth.LeastPrivilege(t.Context(), caller, access); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("caller without an ID deletes a key without an ID: err = %v, want ErrForbidden", err)
	}
}
