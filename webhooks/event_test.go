package webhooks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// An outbox is a store that records published events.
type outbox struct {
	driver.WebhookStore
	events []webhooks.EncodedEvent
}

func (o *outbox) Enqueue(ctx context.Context, event webhooks.EncodedEvent) (int, error) {
	o.events = append(o.events, event)
	return o.WebhookStore.Enqueue(ctx, event)
}

// encode publishes an event and returns its stored form.
func encode(tb testing.TB, event webhooks.Event) (webhooks.EncodedEvent, error) {
	tb.Helper()
	box := &outbox{WebhookStore: memory.New()}
	service := newService(tb, box, webhooks.Config{Now: testclock.At(noon).Now})
	err := service.Publish(tb.Context(), event)
	if len(box.events) == 0 {
		return webhooks.EncodedEvent{}, err
	}
	return box.events[0], err
}

func mustSeal(tb testing.TB, event webhooks.Event) webhooks.EncodedEvent {
	tb.Helper()
	encoded, err := encode(tb, event)
	if err != nil {
		tb.Fatal(err)
	}
	return encoded
}

func TestEventDefaults(t *testing.T) {
	encoded := mustSeal(t, webhooks.Event{Account: account, Data: lowBalance})
	if !strings.HasPrefix(encoded.ID, "evt_") || len(encoded.ID) != 30 || encoded.Timestamp != noon || encoded.Account != account {
		t.Errorf("got %+v", encoded)
	}
	var body struct{ ID, Type, Timestamp string }
	if err := json.Unmarshal(encoded.Body, &body); err != nil {
		t.Fatal(err)
	}
	if body.ID != encoded.ID || body.Type != "balance.low" || body.Timestamp != "2026-11-20T12:00:00.000Z" {
		t.Errorf("the body says %+v", body)
	}
}

// file returns a payload with one file.
func file(f alerts.ExpiringFile) alerts.FilesExpiring {
	return alerts.FilesExpiring{Files: []alerts.ExpiringFile{f}}
}

func TestEvent_Invalid_ReturnsError(t *testing.T) {
	atNoon := alerts.ExpiringFile{ID: "file_1", ExpiresAt: noon}
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	tests := map[string]struct {
		event webhooks.Event
		field string
	}{
		"a pointer":               {webhooks.Event{Account: account, Data: &lowBalance}, "data"},
		"a nil pointer":           {webhooks.Event{Account: account, Data: (*alerts.BalanceLow)(nil)}, "data"},
		"a type of one's own":     {webhooks.Event{Account: account, Data: struct{ alerts.BalanceLow }{}}, "data"},
		"an empty interface":      {webhooks.Event{Account: account, Data: struct{ webhooks.Data }{}}, "data"},
		"an id that is no UTF-8":  {webhooks.Event{Account: account, Data: file(alerts.ExpiringFile{ID: "\xff", ExpiresAt: noon})}, "data.files[0]"},
		"a name that is no UTF-8": {webhooks.Event{Account: account, Data: file(alerts.ExpiringFile{ID: "x", Name: "\xff", ExpiresAt: noon})}, "data.files[0]"},
		"a character in two":      {webhooks.Event{Account: account, Data: file(alerts.ExpiringFile{ID: "x", Name: "\xdc", EnvironmentID: "\x80", ExpiresAt: noon})}, "data.files[0]"},
		"a period of no UTF-8":    {webhooks.Event{Account: account, Data: alerts.BandwidthLimitReached{Period: "\xff"}}, "data.period"},
		"another of no UTF-8":     {webhooks.Event{Account: account, Data: alerts.TransactionsLimitApproaching{Period: "\xff"}}, "data.period"},
		"no data":                 {webhooks.Event{Account: account}, "data"},
		"no account":              {webhooks.Event{Data: lowBalance}, "account"},
		"a bad account":           {webhooks.Event{Account: "a\x00", Data: lowBalance}, "account"},
		"the year 10000":          {webhooks.Event{Account: account, Data: lowBalance, Timestamp: year(10000)}, "timestamp"},
		"a year before 0":         {webhooks.Event{Account: account, Data: lowBalance, Timestamp: year(-1)}, "timestamp"},
		"no files":                {webhooks.Event{Account: account, Data: alerts.FilesExpiring{}}, "data.files"},
		"a file without id":       {webhooks.Event{Account: account, Data: file(alerts.ExpiringFile{ExpiresAt: noon})}, "data.files[0].id"},
		"a file without expiry":   {webhooks.Event{Account: account, Data: file(alerts.ExpiringFile{ID: "x"})}, "data.files[0].expiresAt"},
		"a file for ever":         {webhooks.Event{Account: account, Data: file(alerts.ExpiringFile{ID: "x", ExpiresAt: year(10000)})}, "data.files[0].expiresAt"},
		"the second file":         {webhooks.Event{Account: account, Data: alerts.FilesExpiring{Files: []alerts.ExpiringFile{atNoon, {}}}}, "data.files[1].id"},
		"negative bytes":          {webhooks.Event{Account: account, Data: alerts.BandwidthLimitApproaching{UsedBytes: -1}}, "data"},
		"a negative limit":        {webhooks.Event{Account: account, Data: alerts.BandwidthLimitReached{LimitBytes: -1}}, "data"},
		"negative transactions":   {webhooks.Event{Account: account, Data: alerts.TransactionsLimitApproaching{Used: -1}}, "data"},
		"a ratio above 1":         {webhooks.Event{Account: account, Data: alerts.BandwidthLimitApproaching{Ratio: 1.1}}, "data.ratio"},
		"a ratio that is none":    {webhooks.Event{Account: account, Data: alerts.TransactionsLimitApproaching{Ratio: math.NaN()}}, "data.ratio"},
		"a negative quota":        {webhooks.Event{Account: account, Data: alerts.TransactionsLimitReached{Limit: -1}}, "data"},
	}
	for _, id := range []string{"evt.1", "evt 1", "evt:1", "evt/1", "évt", "evt\n", "evt\x00", ".", strings.Repeat("x", 65), strings.Repeat("x", 1<<20)} {
		tests["the id "+id[:min(len(id), 70)]] = struct {
			event webhooks.Event
			field string
		}{webhooks.Event{ID: id, Account: account, Data: lowBalance}, "id"}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			encoded, err := encode(t, test.event)
			wantInvalid(t, err, test.field)
			if encoded.ID != "" {
				t.Errorf("the store got %+v", encoded)
			}
		})
	}
}

func TestEventIDs(t *testing.T) {
	for _, id := range []string{"a", "0", "_", "-", "Order-42_paid", strings.Repeat("x", 64)} {
		if got := mustSeal(t, webhooks.Event{ID: id, Account: account, Data: lowBalance}); got.ID != id {
			t.Errorf("%s became %s", id, got.ID)
		}
	}
}

// A body has at most 256 KiB; one byte more is refused.
func TestEventSize(t *testing.T) {
	const most = 256 << 10
	sized := func(extra int) webhooks.Event {
		name := strings.Repeat("x", most/2+extra)
		return webhooks.Event{ID: "evt_1", Account: account, Data: file(alerts.ExpiringFile{ID: "1", Name: name, ExpiresAt: noon})}
	}
	fill := most - len(mustSeal(t, sized(0)).Body)
	if got := len(mustSeal(t, sized(fill)).Body); got != most {
		t.Errorf("the body has %d bytes, want %d", got, most)
	}
	_, err := encode(t, sized(fill+1))
	wantInvalid(t, err, "data")
}

// For any text in a payload, receivers get valid JSON with the same text.
func TestEventText_IsDeliveredUnchanged(t *testing.T) {
	texts := []string{`"\/`, "<script>&amp;</script>", "line\nend\r\t\x00\x1b\x7f", "Ümläut 🔑 \u2028\u2029\ufeff\ufffd", `\u003c`}
	for c := range utf8.RuneSelf { // each character at each place in a word
		for i := range 12 {
			texts = append(texts, strings.Repeat("!", i)+string(rune(c))+"ÿ! \x7f!")
		}
	}
	for _, text := range texts {
		encoded := mustSeal(t, webhooks.Event{Account: account, Data: file(alerts.ExpiringFile{ID: text, Name: text, EnvironmentID: text, ExpiresAt: noon})})
		var body struct {
			Data struct {
				Files []struct{ ID, Name, EnvironmentID string }
			}
		}
		if err := json.Unmarshal(encoded.Body, &body); err != nil {
			t.Fatalf("%q: %v in %s", text, err, encoded.Body)
		}
		if got := body.Data.Files[0]; got.ID != text || got.Name != text || got.EnvironmentID != text {
			t.Errorf("%q came out as %+v", text, body)
		}
		if strings.ContainsAny(text, "<>&") && !bytes.Contains(encoded.Body, []byte(text)) {
			t.Errorf("%q was escaped: %s", text, encoded.Body)
		}
	}
}

func FuzzEvent(f *testing.F) {
	f.Add("file_1", "Q&A <draft>.pdf", "env_1", int64(1_800_000_000), "evt_1")
	f.Add("", "", "", int64(-1), "")
	f.Add("\"\\\n\x7f", "\ufffd", "Ü🔑", int64(1), "a")
	f.Add("\xff", "\u2028", "\x00", int64(1<<40), "a.b")
	f.Fuzz(func(t *testing.T, fileID, name, environment string, expires int64, id string) {
		data := file(alerts.ExpiringFile{ID: fileID, Name: name, EnvironmentID: environment, ExpiresAt: time.Unix(expires, 0)})
		encoded, err := encode(t, webhooks.Event{ID: id, Account: account, Data: data})
		if err != nil {
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, encoded.Body); err != nil || !bytes.Equal(compact.Bytes(), encoded.Body) {
			t.Errorf("not compact JSON: %v in %q", err, encoded.Body)
		}
		var body struct {
			ID, Type string
			Data     struct {
				Files []struct {
					ID, Name, EnvironmentID string
					ExpiresAt               time.Time
				}
			}
		}
		if err := json.Unmarshal(encoded.Body, &body); err != nil || body.ID != encoded.ID || !body.Data.Files[0].ExpiresAt.Equal(time.Unix(expires, 0)) {
			t.Fatalf("%v in %q", err, encoded.Body)
		}
		if got := body.Data.Files[0]; got.ID != fileID || got.Name != name || got.EnvironmentID != environment {
			t.Errorf("%q, %q and %q became %+v", fileID, name, environment, got)
		}
	})
}
