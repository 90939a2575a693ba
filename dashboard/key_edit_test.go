package dashboard_test

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/internal/testclock"
)

func TestPauseKey(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, token := s.key(alice, "of the intern", time.Time{})
	path := "api-keys/" + key.ID
	ask := s.get(path+"/turn").want(http.StatusOK).says("Pause “of the intern”?", "It has never been used.")
	if !s.valid(token) {
		t.Error("asking pauses")
	}
	for range 2 { // sending the form again changes nothing
		s.follow(s.post(path+"/turn", ask.form())).want(http.StatusOK).says("Key paused.", "This key is paused.", "Resume").hides("Pause…")
	}
	if s.valid(token) {
		t.Error("the paused key works")
	}
	s.get("api-keys").says("Paused")
	rotate := s.get(path + "/rotate").says("The current value ends for good.")
	fresh := s.post(path+"/rotate", rotate.form()).want(http.StatusOK).says("The previous value no longer works.").secret()
	s.follow(s.post(path+"/turn", s.get(path).form())).says("Key resumed.", "Pause…").hides("Resume")
	if s.valid(token) || !s.valid(fresh) {
		t.Error("resuming does not enable exactly the new value")
	}
	s.get("audit-log").says("Key paused", "Key resumed")
	s.post(path+"/turn", nil).want(http.StatusBadRequest)
}

func TestEditKey(t *testing.T) {
	clock := testclock.At(noon)
	s := newSite(t, storageapi.Config{Keys: apikeys.Config{Now: clock.Now}})
	key, _ := s.key(alice, "a", noon.Add(48*time.Hour))
	path := "api-keys/" + key.ID
	now := func() apikeys.Key { return s.keys()[0] }
	form := s.get(path+"/edit").want(http.StatusOK).says("Unchanged").form("labels", "team = billing\r\n\r\nurl=a=b\r\n", "expiry", "keep")
	s.follow(s.post(path+"/edit", form)).want(http.StatusOK).says("Changes saved.", "team=billing", "url=a=b")
	if got := now(); !got.ExpiresAt.Equal(key.ExpiresAt) {
		t.Errorf("expires at %v", got.ExpiresAt)
	}

	// The form is outdated, because the labels have changed.
	form.Set("labels", "team=other")
	stale := s.post(path+"/edit", form).want(http.StatusConflict).says("was changed since you opened the form", "team=other")
	if diff := cmp.Diff(map[string]string{"team": "billing", "url": "a=b"}, now().Labels.Map()); diff != "" {
		t.Errorf("after an outdated form (-want +got):\n%s", diff)
	}
	s.follow(s.post(path+"/edit", stale.form("labels", "team=other", "expiry", "30"))).says("Changes saved.")
	if got := now(); !got.ExpiresAt.Equal(time.Date(2026, 12, 21, 0, 0, 0, 0, time.UTC)) || got.Labels.Map()["team"] != "other" || len(got.Labels.Map()) != 1 {
		t.Errorf("got %+v", got)
	}

	for _, test := range []struct {
		fields []string
		want   string
	}{
		{[]string{"labels", "no value", "expiry", "keep"}, "Write each label on a line of its own, as name=value."},
		{[]string{"labels", "=a", "expiry", "keep"}, "Must have names of 1 to 64 characters"},
		{[]string{"labels", "a=b", "expiry", ""}, "Select when the key expires."},
		{[]string{"labels", "a=b", "expiry", "date", "date", "2020-01-01"}, "Must be in the future."},
	} {
		s.post(path+"/edit", s.get(path+"/edit").form(test.fields...)).want(http.StatusUnprocessableEntity).says(test.want, "Nothing was saved")
	}
	s.follow(s.post(path+"/edit", s.get(path+"/edit").form("labels", "", "expiry", "never"))).says("Changes saved.", "Never")
	if got := now(); !got.ExpiresAt.IsZero() || got.Labels != "" {
		t.Errorf("got %+v", got)
	}
}

// A user who may change keys but not create them can pause a key or shorten its life, but not
// extend it.
func TestEditKey_UserMayNotCreateKeys_CannotExtend(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.pages = s.mount(dashboard.Config{Logger: slog.New(slog.DiscardHandler), May: func(_ *http.Request, action auth.Action) bool { return action != auth.CreateKey }})
	key, _ := s.key(alice, "a", time.Now().Add(60*24*time.Hour))
	path := "api-keys/" + key.ID
	edit := func(expiry string) *page {
		return s.post(path+"/edit", s.get(path+"/edit").form("labels", "a=b", "expiry", expiry))
	}
	edit("90").want(http.StatusForbidden)
	edit("never").want(http.StatusForbidden)
	edit("30").want(http.StatusSeeOther)
	s.post(path+"/turn", s.get(path+"/turn").form()).want(http.StatusSeeOther)
	s.get(path).says("This key is paused.").hides("Resume")
	s.post(path+"/turn", map[string][]string{"to": {"resumed"}}).want(http.StatusForbidden)
	if !s.keys()[0].Disabled {
		t.Error("the key is resumed")
	}
}

func TestKeyForms_MaxLifetime_OfferNoLaterExpiry(t *testing.T) {
	clock := testclock.At(noon)
	s := newSite(t, storageapi.Config{Keys: apikeys.Config{Now: clock.Now, MaxLifetime: 60 * 24 * time.Hour}})
	create := s.get("api-keys/new").says("As late as possible", "In 30 days").hides("In 90 days", "Never")
	s.post("api-keys/new", create.form("name", "a", "scopes", "files:read", "expiry", "never")).want(http.StatusOK)
	s.post("api-keys/new", s.get("api-keys/new").form("name", "a", "scopes", "files:read", "expiry", "date", "date", "2027-02-01")).
		want(http.StatusUnprocessableEntity).says("Must be at most 60 days after")
	key := s.keys()[0]
	if !key.ExpiresAt.Equal(noon.Add(60 * 24 * time.Hour)) {
		t.Errorf("expires at %v", key.ExpiresAt)
	}
	clock.Add(24 * time.Hour)
	path := "api-keys/" + key.ID + "/edit"
	s.post(path, s.get(path).form("labels", "", "expiry", "date", "date", "2027-01-20")).want(http.StatusUnprocessableEntity).says("Must be at most 60 days after")
	s.follow(s.post(path, s.get(path).form("labels", "", "expiry", "30"))).says("Changes saved.")
}
