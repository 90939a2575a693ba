package httpapi_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

type teamCreated struct {
	TeamID string `json:"teamId"`
}

func (teamCreated) EventType() webhooks.EventType { return "teams.created" }

var createdTeam = webhooks.EventDeclaration{Type: "teams.created", Description: "Team created", Scope: teamsRead, Example: teamCreated{"team_1"}}

// TestOwnEvents declares an event type, withdraws it, and declares it again. During the withdrawal,
// a webhook is subscribed to the type, and an event is pending.
func TestOwnEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	r := newReceiver(t)
	open := func(declare bool) (*host, func()) {
		config := storageapi.Config{Path: path, Webhooks: r.config()}
		if declare {
			config.Scopes = []scopes.Declaration{readTeams}
			config.Webhooks.Events = []webhooks.EventDeclaration{createdTeam}
		}
		api, err := storageapi.NewHandler(config)
		if err != nil {
			t.Fatal(err)
		}
		return mount(t, api, api), func() {
			if err := api.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	h, end := open(true)
	_, reader := h.key(alice, teamsRead)
	_, specified := h.key(alice, allScopes()...)
	_, all := h.key(alice, append(allScopes(), teamsRead)...)
	body := `{"url":"` + r.URL + `","events":["teams.created"]}`
	if got := h.do("POST", webhooksPath, specified, body).want(403, auth.CodeForbidden).message(); !strings.Contains(got, "files:read for files.expiring, teams:read for teams.created, account:read for all others.") {
		t.Errorf("the refusal says %s", got)
	}
	id := h.do("POST", webhooksPath, reader, body).want(201, "").text("id") // reads only team events
	one := webhooksPath + "/" + id
	h.do("POST", webhooksPath, reader, `{"url":"`+r.URL+`","events":["teams.created","balance.low"]}`).want(403, auth.CodeForbidden)
	if got := h.do("POST", webhooksPath, all, `{"url":"`+r.URL+`","events":["teams.deleted"]}`).want(400, auth.CodeValidation).message(); !strings.Contains(got, `teams.created; unknown: "teams.deleted"`) {
		t.Errorf("the refusal says %s", got)
	}
	h.do("PATCH", one, specified, `{"active":false}`).want(403, auth.CodeForbidden)
	h.do("POST", one+"/test", reader, "").want(200, "")
	<-r.received
	if err := h.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: "evt_1", Account: alice, Data: teamCreated{"team_1"}}); err != nil {
		t.Fatal(err)
	}
	end()

	h, end = open(false)
	if diff := cmp.Diff([]any{"teams.created"}, h.do("GET", one, specified, "").want(200, "").object()["events"]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	h.do("PATCH", one, reader, `{"active":false}`).want(403, auth.CodeForbidden) // the key's only scope is no longer declared
	_, half := h.key(alice, scopes.AccountRead, scopes.FilesRead)
	h.do("PATCH", one, half, `{"url":"`+r.URL+`/theirs"}`).want(403, auth.CodeForbidden)
	h.do("PATCH", one, specified, `{"events":["teams.created","balance.low"]}`).want(200, "")
	ended := make(chan error, 1)
	go func() { ended <- h.api.Run(t.Context()) }()
	delivered := func(r reply) bool { return r.text("state") == "delivered" }
	<-r.received
	h.await(one+"/deliveries/evt_1", all, delivered)
	h.do("POST", one+"/deliveries/evt_1/redeliver", specified, "").want(202, "")
	<-r.received
	h.await(one+"/deliveries/evt_1", all, delivered) // the recovery below finds only deliveries in this state
	h.do("POST", one+"/recoveries", specified, `{"from":"2020-01-01T00:00:00Z","states":["delivered"]}`).want(202, "")
	<-r.received
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	h, end = open(true)
	h.do("PATCH", one, specified, `{"active":false}`).want(403, auth.CodeForbidden)
	h.do("PATCH", one, all, `{"active":false}`).want(200, "")
	h.do("DELETE", one, all, "").want(204, "")
	end()
}
