package webhooks

import (
	"cmp"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/storageapi/storageapi/webhooks/internal/jsontext"
)

// Data is the payload of an event: a value of one of the types below, one per event type in
// docs/spec.md, section 6, or of a host type whose event type is declared in [Config.Events]. It
// encodes to a JSON object. Strings in it must be UTF-8.
type Data interface {
	// EventType returns the event type of the payload.
	EventType() EventType
}

// specified is a payload in docs/spec.md, section 6.
type specified interface{ check() error }

// FilesExpiring reports that files are about to expire.
type FilesExpiring struct {
	Files []ExpiringFile `json:"files"`
}

// An ExpiringFile is one file of a [FilesExpiring] event. Its JSON fields are "id", "name",
// "environmentId" and "expiresAt".
type ExpiringFile struct {
	ID            string    // required
	Name          string    // optional; omitted if empty
	EnvironmentID string    // optional; omitted if empty
	ExpiresAt     time.Time // required; in JSON RFC 3339, UTC, milliseconds
}

// MarshalJSON returns the JSON that receivers get.
func (f ExpiringFile) MarshalJSON() ([]byte, error) { return f.append(nil), nil }

func (f *ExpiringFile) append(b []byte) []byte {
	b = jsontext.AppendString(append(b, `{"id":`...), f.ID)
	if f.Name != "" {
		b = jsontext.AppendString(append(b, `,"name":`...), f.Name)
	}
	if f.EnvironmentID != "" {
		b = jsontext.AppendString(append(b, `,"environmentId":`...), f.EnvironmentID)
	}
	b = jsontext.AppendTime(append(b, `,"expiresAt":"`...), f.ExpiresAt)
	return append(b, `"}`...)
}

// append appends the payload as JSON, in a quarter of the time of [json.Marshal].
func (d *FilesExpiring) append(b []byte) []byte {
	b = append(b, `{"files":[`...)
	for i := range d.Files {
		if i > 0 {
			b = append(b, ',')
		}
		b = d.Files[i].append(b)
	}
	return append(b, `]}`...)
}

// BalanceLow reports that the account's balance fell below a threshold.
// [WebhookService.ReportBalance] sends each webhook its own event; Publish sends one event to all
// subscribed webhooks of the account, regardless of their thresholds.
type BalanceLow struct {
	Balance   Amount `json:"balance"`   // in SUI, a decimal string
	Threshold Amount `json:"threshold"` // in SUI, a decimal string
}

func (d *BalanceLow) append(b []byte) []byte {
	b = d.Balance.append(append(b, `{"balance":"`...))
	b = d.Threshold.append(append(b, `","threshold":"`...))
	return append(b, `"}`...)
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
func (FilesExpiring) EventType() EventType { return TypeFilesExpiring }

// EventType returns [TypeBalanceLow].
func (BalanceLow) EventType() EventType { return TypeBalanceLow }

// EventType returns [TypeBandwidthLimitApproaching].
func (BandwidthLimitApproaching) EventType() EventType { return TypeBandwidthLimitApproaching }

// EventType returns [TypeBandwidthLimitReached].
func (BandwidthLimitReached) EventType() EventType { return TypeBandwidthLimitReached }

// EventType returns [TypeTransactionsLimitApproaching].
func (TransactionsLimitApproaching) EventType() EventType { return TypeTransactionsLimitApproaching }

// EventType returns [TypeTransactionsLimitReached].
func (TransactionsLimitReached) EventType() EventType { return TypeTransactionsLimitReached }

func (d FilesExpiring) check() error {
	if len(d.Files) == 0 {
		return invalid("data.files", "must name at least one file")
	}
	for i := range d.Files {
		if field, problem := d.Files[i].check(); problem != "" {
			return invalid(fmt.Sprintf("data.files[%d]%s", i, field), problem)
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
		return "", "must hold UTF-8 only"
	case !writable(f.ExpiresAt):
		return ".expiresAt", "must be in the years 0 to 9999"
	}
	return "", ""
}

func (BalanceLow) check() error { return nil }

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
		return invalid("data", "must not have a negative use or limit")
	case !utf8.ValidString(period):
		return invalid("data.period", "must be UTF-8")
	}
	return nil
}

func checkRatio(ratio float64) error {
	if !(ratio >= 0 && ratio <= 1) { // NaN, too
		return invalid("data.ratio", "must be from 0 to 1")
	}
	return nil
}
