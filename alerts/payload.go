package alerts

import (
	"cmp"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/internal/jsontext"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// The event types of docs/spec.md, section 6.
const (
	TypeFilesExpiring                webhooks.EventType = "files.expiring"
	TypeBalanceLow                   webhooks.EventType = "balance.low"
	TypeBandwidthLimitApproaching    webhooks.EventType = "bandwidth.limit_approaching"
	TypeBandwidthLimitReached        webhooks.EventType = "bandwidth.limit_reached"
	TypeTransactionsLimitApproaching webhooks.EventType = "transactions.limit_approaching"
	TypeTransactionsLimitReached     webhooks.EventType = "transactions.limit_reached"
)

// EventTypes returns the types in docs/spec.md, section 6, in its order.
func EventTypes() []webhooks.EventType {
	var types []webhooks.EventType
	for _, d := range Events() {
		types = append(types, d.Type)
	}
	return types
}

// Events declares the types in docs/spec.md, section 6, in its order, with their payload types in
// this package. storageapi.NewHandler puts them before the host's own declarations. A host that
// creates the WebhookService itself puts them into [webhooks.Config.Events].
func Events() []webhooks.EventDeclaration {
	const period = "2026-11"
	expires := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	events := []webhooks.EventDeclaration{
		{Description: "Files expiring soon", Scope: scopes.FilesRead, Example: FilesExpiring{[]ExpiringFile{{ID: "file_1", ExpiresAt: expires}}}},
		{Description: "Low balance", Example: BalanceLow{9_500_000_000, 10_000_000_000}},
		{Description: "Bandwidth limit approaching", Example: BandwidthLimitApproaching{80, 100, period, 0.8}},
		{Description: "Bandwidth limit reached", Example: BandwidthLimitReached{100, 100, period}},
		{Description: "Transaction limit approaching", Example: TransactionsLimitApproaching{80, 100, period, 0.8}},
		{Description: "Transaction limit reached", Example: TransactionsLimitReached{100, 100, period}},
	}
	for i := range events {
		d := &events[i]
		d.Type, d.Scope, d.Append = d.Example.EventType(), cmp.Or(d.Scope, scopes.AccountRead), appendPayload
	}
	return events
}

// appendPayload validates a payload and appends it as JSON. It refuses types that have the
// EventType method of a payload but are not that payload, such as types that embed one.
func appendPayload(b []byte, data webhooks.Data) ([]byte, error) {
	var err error
	switch d := data.(type) {
	case FilesExpiring:
		err = d.check()
	case BalanceLow:
	case BandwidthLimitApproaching:
		err = d.check()
	case BandwidthLimitReached:
		err = d.check()
	case TransactionsLimitApproaching:
		err = d.check()
	case TransactionsLimitReached:
		err = d.check()
	default:
		err = input.Invalid("data", "must be a value of one of the payload types, such as alerts.BalanceLow")
	}
	if err != nil {
		return nil, err
	}
	if d, ok := data.(FilesExpiring); ok { // without the cost of a MarshalJSON for each file
		data := struct {
			Files []encodedFile `json:"files"`
		}{make([]encodedFile, len(d.Files))}
		for i := range d.Files {
			data.Files[i] = d.Files[i].encoded()
		}
		return jsontext.AppendValue(b, data)
	}
	return jsontext.AppendValue(b, data)
}

// FilesExpiring reports that files are about to expire.
type FilesExpiring struct {
	Files []ExpiringFile `json:"files"`
}

// An ExpiringFile is one file of a [FilesExpiring] event. Its JSON fields are "id", "name",
// "environmentId" and "expiresAt".
type ExpiringFile struct {
	ID            string    `json:"id"`
	Name          string    `json:"name,omitempty"`          // optional
	EnvironmentID string    `json:"environmentId,omitempty"` // optional
	ExpiresAt     time.Time `json:"expiresAt"`               // in JSON RFC 3339, UTC, milliseconds
}

// MarshalJSON returns the JSON that receivers get.
func (f ExpiringFile) MarshalJSON() ([]byte, error) { return jsontext.AppendValue(nil, f.encoded()) }

// An encodedFile is an [ExpiringFile] with its time as receivers get it.
type encodedFile struct {
	file
	ExpiresAt string `json:"expiresAt"`
}

// A file is an [ExpiringFile] without MarshalJSON.
type file ExpiringFile

func (f ExpiringFile) encoded() encodedFile {
	return encodedFile{file(f), string(jsontext.AppendTime(nil, f.ExpiresAt))}
}

// BalanceLow reports that the account's balance fell below a threshold.
// [AlertService.ReportBalance] sends each webhook its own event; [webhooks.WebhookService.Publish]
// sends one event to all subscribed webhooks of the account, regardless of their thresholds.
type BalanceLow struct {
	Balance   Amount `json:"balance"`   // a decimal string
	Threshold Amount `json:"threshold"` // a decimal string
}

// BandwidthLimitApproaching reports that the account's bandwidth use is near its limit.
type BandwidthLimitApproaching struct {
	UsedBytes  int64   `json:"usedBytes"`       // bytes used in the period
	LimitBytes int64   `json:"limitBytes"`      // bytes allowed in the period
	Period     string  `json:"period"`          // the host's name for the period: "2026-11"
	Ratio      float64 `json:"ratio,omitempty"` // reached fraction of the limit, 0 to 1; optional
}

// BandwidthLimitReached reports that the account's bandwidth limit is reached.
type BandwidthLimitReached struct {
	UsedBytes  int64  `json:"usedBytes"`  // bytes used in the period
	LimitBytes int64  `json:"limitBytes"` // bytes allowed in the period
	Period     string `json:"period"`     // the host's name for the period: "2026-11"
}

// TransactionsLimitApproaching reports that the account's transactions are near their limit.
type TransactionsLimitApproaching struct {
	Used   int64   `json:"used"`            // transactions made in the period
	Limit  int64   `json:"limit"`           // transactions allowed in the period
	Period string  `json:"period"`          // the host's name for the period: "2026-11"
	Ratio  float64 `json:"ratio,omitempty"` // reached fraction of the limit, 0 to 1; optional
}

// TransactionsLimitReached reports that the account's transaction limit is reached.
type TransactionsLimitReached struct {
	Used   int64  `json:"used"`   // transactions made in the period
	Limit  int64  `json:"limit"`  // transactions allowed in the period
	Period string `json:"period"` // the host's name for the period: "2026-11"
}

// EventType returns [TypeFilesExpiring].
func (FilesExpiring) EventType() webhooks.EventType { return TypeFilesExpiring }

// EventType returns [TypeBalanceLow].
func (BalanceLow) EventType() webhooks.EventType { return TypeBalanceLow }

// EventType returns [TypeBandwidthLimitApproaching].
func (BandwidthLimitApproaching) EventType() webhooks.EventType { return TypeBandwidthLimitApproaching }

// EventType returns [TypeBandwidthLimitReached].
func (BandwidthLimitReached) EventType() webhooks.EventType { return TypeBandwidthLimitReached }

// EventType returns [TypeTransactionsLimitApproaching].
func (TransactionsLimitApproaching) EventType() webhooks.EventType {
	return TypeTransactionsLimitApproaching
}

// EventType returns [TypeTransactionsLimitReached].
func (TransactionsLimitReached) EventType() webhooks.EventType { return TypeTransactionsLimitReached }

func (d FilesExpiring) check() error {
	if len(d.Files) == 0 {
		return input.Invalid("data.files", "must name at least one file")
	}
	for i := range d.Files {
		if field, problem := d.Files[i].check(); problem != "" {
			return input.Invalid(fmt.Sprintf("data.files[%d]%s", i, field), problem)
		}
	}
	return nil
}

// check returns the invalid field and its problem; problem is empty if the file is valid.
func (f *ExpiringFile) check() (field, problem string) {
	switch {
	case f.ID == "":
		return ".id", "is required"
	case f.ExpiresAt.IsZero():
		return ".expiresAt", "is required"
	case !utf8.ValidString(f.ID) || !utf8.ValidString(f.Name) || !utf8.ValidString(f.EnvironmentID):
		return "", "must be valid UTF-8"
	case f.ExpiresAt.UTC().Year() < 0 || f.ExpiresAt.UTC().Year() > 9999:
		return ".expiresAt", "must be in the years 0 to 9999"
	}
	return "", ""
}

func (d BandwidthLimitApproaching) check() error {
	return cmp.Or(checkUsage(d.UsedBytes, d.LimitBytes, d.Period), checkRatio(d.Ratio))
}

func (d BandwidthLimitReached) check() error {
	return checkUsage(d.UsedBytes, d.LimitBytes, d.Period)
}

func (d TransactionsLimitApproaching) check() error {
	return cmp.Or(checkUsage(d.Used, d.Limit, d.Period), checkRatio(d.Ratio))
}

func (d TransactionsLimitReached) check() error { return checkUsage(d.Used, d.Limit, d.Period) }

func checkUsage(used, limit int64, period string) error {
	switch {
	case used < 0 || limit < 0:
		return input.Invalid("data", "must not have a negative use or limit")
	case !utf8.ValidString(period):
		return input.Invalid("data.period", "must be UTF-8")
	}
	return nil
}

func checkRatio(ratio float64) error {
	if !(ratio >= 0 && ratio <= 1) { // also rejects NaN
		return input.Invalid("data.ratio", "must be from 0 to 1")
	}
	return nil
}
