package webhooks_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

const typeTeamCreated webhooks.EventType = "teams.created"

// A teamCreated is an event payload that a host defines.
type teamCreated struct {
	TeamID string `json:"teamId"`
	Name   string `json:"name"`
}

func (teamCreated) EventType() webhooks.EventType { return typeTeamCreated }

// ownData is a payload that encodes to the result of marshal.
type ownData struct{ marshal func() ([]byte, error) }

func (ownData) EventType() webhooks.EventType  { return typeTeamCreated }
func (d ownData) MarshalJSON() ([]byte, error) { return d.marshal() }

type undeclared map[string]string

func (undeclared) EventType() webhooks.EventType { return "teams.deleted" }

type liar map[string]string

func (liar) EventType() webhooks.EventType { return alerts.TypeBalanceLow }

type list []string

func (list) EventType() webhooks.EventType { return typeTeamCreated }

var (
	readTeams    = scopes.Declaration{Scope: "teams:read", Description: "List teams"}
	declaredTeam = webhooks.EventDeclaration{
		Type: typeTeamCreated, Description: "Team created", Scope: "teams:read", Example: teamCreated{"team_1", "Research"},
	}
)

// withTeams returns a Config that declares teamCreated, and the Option that declares its scope.
func withTeams(tb testing.TB) (webhooks.Config, driver.Option) {
	tb.Helper()
	vocabulary, err := scopes.NewVocabulary(readTeams)
	if err != nil {
		tb.Fatal(err)
	}
	return webhooks.Config{Events: []webhooks.EventDeclaration{declaredTeam}}, driver.WithScopes(vocabulary)
}

func newTeamService(tb testing.TB) *webhooks.WebhookService {
	tb.Helper()
	config, option := withTeams(tb)
	return newService(tb, memory.New(), config, option)
}

func TestOwnEventBody(t *testing.T) {
	service := newTeamService(t)
	for name, data := range map[string]webhooks.Data{"a value": teamCreated{"team_1", "R&D <é>"}, "a pointer": &teamCreated{"team_1", "R&D <é>"}} {
		encoded, err := service.Encode(t.Context(), webhooks.Event{ID: "evt_1", Account: account, Timestamp: noon, Data: data})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := `{"id":"evt_1","type":"teams.created","timestamp":"2026-11-20T12:00:00.000Z","data":{"teamId":"team_1","name":"R&D <é>"}}`
		if encoded.Type != typeTeamCreated || string(encoded.Body) != want {
			t.Errorf("%s: %s: %s, want %s", name, encoded.Type, encoded.Body, want)
		}
	}
}

func TestOwnEvent_Invalid_ReturnsError(t *testing.T) {
	service := newTeamService(t)
	text := func(s string, err error) ownData { return ownData{func() ([]byte, error) { return []byte(s), err }} }
	for name, data := range map[string]webhooks.Data{
		"a type that is not declared": undeclared{},
		"one of section 6":            liar{},
		"an array":                    list{"a"},
		"null":                        list(nil),
		"a string":                    text(`"x"`, nil),
		"no JSON":                     text(`{`, nil),
		"an error":                    text(``, errors.New("no")),
		"a panic":                     ownData{},
		"a nil pointer":               (*teamCreated)(nil),
		"no UTF-8":                    text("{\"name\":\"\xff\"}", nil),
		"too much":                    teamCreated{Name: strings.Repeat("x", 256<<10)},
		"of webhook.test":             testData{},
	} {
		err := service.Publish(t.Context(), webhooks.Event{Account: account, Data: data})
		wantInvalid(t, err, "data")
		if _, err := json.Marshal(fmt.Sprint(err)); err != nil || len(fmt.Sprint(err)) > 500 {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A host that declares no types can publish only the six types of the specification.
	err := newService(t, memory.New(), webhooks.Config{}).Publish(t.Context(), webhooks.Event{Account: account, Data: teamCreated{}})
	wantInvalid(t, err, "data")
}

// teamWithBalance embeds a payload type of section 6, but the rules for that type do not apply.
type teamWithBalance struct {
	*alerts.BalanceLow
	TeamID string `json:"teamId"`
}

func (teamWithBalance) EventType() webhooks.EventType { return typeTeamCreated }

func TestOwnEvent_EmbedsAnother_IsAccepted(t *testing.T) {
	service := newTeamService(t)
	for name, embedded := range map[string]*alerts.BalanceLow{"nothing": nil, "what breaks its rules": {Balance: 2, Threshold: 1}} {
		if _, err := service.Encode(t.Context(), webhooks.Event{ID: "evt_1", Account: account, Data: teamWithBalance{embedded, "team_1"}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type testData struct{}

func (testData) EventType() webhooks.EventType { return webhooks.TypeTest }

func TestEventDeclaration_Invalid_ReturnsError(t *testing.T) {
	change := func(change func(*webhooks.EventDeclaration)) []webhooks.EventDeclaration {
		d := declaredTeam
		change(&d)
		return []webhooks.EventDeclaration{d}
	}
	named := func(name webhooks.EventType) []webhooks.EventDeclaration {
		return change(func(d *webhooks.EventDeclaration) { d.Type, d.Example, d.Schema = name, nil, json.RawMessage(`{}`) })
	}
	many := make([]webhooks.EventDeclaration, webhooks.MaxEventTypes+1)
	for i := range many {
		many[i] = named(webhooks.EventType(fmt.Sprintf("teams.created%d", i)))[0]
	}
	for name, test := range map[string]struct {
		events []webhooks.EventDeclaration
		field  string
	}{
		"no type":             {named(""), `Events[""].Type`},
		"one word":            {named("teams"), `Events["teams"].Type`},
		"an empty word":       {named("teams."), `Events["teams."].Type`},
		"upper case":          {named("Teams.created"), `Events["Teams.created"].Type`},
		"a hyphen":            {named("teams.was-created"), `Events["teams.was-created"].Type`},
		"a long one":          {named(webhooks.EventType("a." + strings.Repeat("x", 63))), `Events["a.` + strings.Repeat("x", 63) + `"].Type`},
		"webhook.test":        {named("webhook.test"), `Events["webhook.test"].Type`},
		"twice":               {append(named("a.b"), named("a.b")...), `Events["a.b"].Type`},
		"no description":      {change(func(d *webhooks.EventDeclaration) { d.Description = "" }), `Events["teams.created"].Description`},
		"no scope":            {change(func(d *webhooks.EventDeclaration) { d.Scope = "" }), `Events["teams.created"].Scope`},
		"an unknown scope":    {change(func(d *webhooks.EventDeclaration) { d.Scope = "zoos:read" }), `Events["teams.created"].Scope`},
		"nothing to show":     {change(func(d *webhooks.EventDeclaration) { d.Example = nil }), `Events["teams.created"].Example`},
		"another's example":   {change(func(d *webhooks.EventDeclaration) { d.Example = undeclared{} }), `Events["teams.created"].Example`},
		"an example that bad": {change(func(d *webhooks.EventDeclaration) { d.Example = list{} }), `Events["teams.created"].Example`},
		"a schema of no JSON": {change(func(d *webhooks.EventDeclaration) { d.Schema = json.RawMessage(`{`) }), `Events["teams.created"].Schema`},
		"a boolean schema":    {change(func(d *webhooks.EventDeclaration) { d.Schema = json.RawMessage(`true`) }), `Events["teams.created"].Schema`},
		"a reference":         {change(func(d *webhooks.EventDeclaration) { d.Schema = json.RawMessage(`{"$ref":"#/$defs/a"}`) }), `Events["teams.created"].Schema`},
		"a dynamic one":       {change(func(d *webhooks.EventDeclaration) { d.Schema = json.RawMessage(`{"$dynamicRef":"#a"}`) }), `Events["teams.created"].Schema`},
		"an empty schema":     {change(func(d *webhooks.EventDeclaration) { d.Schema = json.RawMessage(``) }), `Events["teams.created"].Schema`},
		"too many":            {many, "Events"},
	} {
		config, option := withTeams(t)
		config.Events = test.events
		_, err := webhooks.New(memory.New(), config, option)
		var wrong *apierr.ValidationError
		if !errors.As(err, &wrong) || wrong.Field != test.field {
			t.Errorf("%s: %v, want the field %s", name, err, test.field)
		}
	}
	config, option := withTeams(t)
	if config.Events = many[:webhooks.MaxEventTypes-len(alerts.Events())]; len(newService(t, memory.New(), config, option).EventTypes()) != webhooks.MaxEventTypes {
		t.Error("there are not as many as there may be")
	}
}

func TestOwnEvents_CanBeSubscribedTo(t *testing.T) {
	service := newTeamService(t)
	events := []webhooks.EventType{typeTeamCreated, alerts.TypeFilesExpiring, typeTeamCreated}
	webhook, err := service.Create(t.Context(), account, webhooks.CreateParams{URL: anyURL, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(events[:2], webhook.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got, want := service.ReadScopes(events), scopes.Of("teams:read", scopes.FilesRead); got != want {
		t.Errorf("they take %q, want %q", got, want)
	}
	_, err = service.Create(t.Context(), account, webhooks.CreateParams{URL: anyURL, Events: []webhooks.EventType{"teams.deleted"}})
	wantInvalid(t, err, "events")
	if want := `transactions.limit_reached, teams.created; unknown: "teams.deleted"`; !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want the list of what is known", err)
	}
	if _, ok := service.DeclaredEvent("teams.deleted"); ok {
		t.Error("teams.deleted is declared")
	}
	if d, ok := service.DeclaredEvent(typeTeamCreated); !ok || d.Description != "Team created" {
		t.Errorf("got %+v, %v", d, ok)
	}
}

// TestWithdrawnEvents subscribes to a type, publishes an event of that type, and then removes the
// type's declaration.
func TestWithdrawnEvents(t *testing.T) {
	store := newLedger()
	receiver := newReceiver(t, func(http.ResponseWriter, *http.Request) {})
	config, option := withTeams(t)
	config.Outbound.AllowNetworks = loopback
	service := newService(t, store, config, option)
	webhook, err := service.Create(t.Context(), account, webhooks.CreateParams{URL: receiver.url("127.0.0.1"), Events: []webhooks.EventType{typeTeamCreated, alerts.TypeBalanceLow}})
	if err != nil {
		t.Fatal(err)
	}
	if err := service.Publish(t.Context(), webhooks.Event{ID: "evt_1", Account: account, Data: teamCreated{"team_1", "Research"}}); err != nil {
		t.Fatal(err)
	}

	service = newService(t, store, reaching(new(testlog.Book)))
	start(t, service)
	if got := store.next(t); got.Attempt.Error != "" {
		t.Errorf("what was pending is settled as %+v", got)
	}
	if err := service.Redeliver(t.Context(), account, webhook.ID, "evt_1"); err != nil {
		t.Error(err)
	}
	if got := store.next(t); got.Attempt.Error != "" || len(receiver.requests()) != 2 {
		t.Errorf("what is sent again is settled as %+v", got)
	}
	kept, err := service.Get(t.Context(), account, webhook.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(webhook.Events, kept.Events); diff != "" {
		t.Errorf("its events (-want +got):\n%s", diff)
	}
	if got := service.ReadScopes(kept.Events); got != scopes.Specified() {
		t.Errorf("it takes %q", got)
	}
	// A webhook may keep its undeclared types, but cannot add others.
	if _, err := service.Update(t.Context(), account, webhook.ID, webhooks.UpdateParams{Events: []webhooks.EventType{alerts.TypeFilesExpiring, typeTeamCreated}}); err != nil {
		t.Error(err)
	}
	_, err = service.Update(t.Context(), account, webhook.ID, webhooks.UpdateParams{Events: []webhooks.EventType{typeTeamCreated, "teams.deleted"}})
	wantInvalid(t, err, "events")
	if _, err := service.Update(t.Context(), account, webhook.ID, webhooks.UpdateParams{Events: onBalance}); err != nil {
		t.Error(err)
	}
	for _, id := range []string{webhook.ID, "wh_none"} {
		_, err = service.Update(t.Context(), account, id, webhooks.UpdateParams{Events: []webhooks.EventType{typeTeamCreated}})
		wantInvalid(t, err, "events")
	}
	if got := service.ReadScopes([]webhooks.EventType{alerts.TypeBalanceLow}); got != scopes.Of(scopes.AccountRead) {
		t.Errorf("without it, it takes %q", got)
	}
}
