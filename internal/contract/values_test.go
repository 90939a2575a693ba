package contract

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/webhooks"
)

// everyEvent returns events of all types with extreme values.
func everyEvent() []webhooks.Data {
	const most = 1<<53 - 1 // all JSON readers decode it exactly
	return []webhooks.Data{
		alerts.FilesExpiring{Files: []alerts.ExpiringFile{
			{ID: "file_1", Name: "Q&A <draft>.pdf", EnvironmentID: "env_1", ExpiresAt: time.Now()},
			{ID: "file_2", ExpiresAt: time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)},
		}},
		alerts.FilesExpiring{Files: []alerts.ExpiringFile{{ID: "1", Name: "a", EnvironmentID: "b", ExpiresAt: time.Unix(0, 0)}}},
		alerts.BalanceLow{Balance: 0, Threshold: 1},
		alerts.BalanceLow{Balance: 20_250_000_000, Threshold: 1<<64 - 1},
		alerts.BandwidthLimitApproaching{UsedBytes: 0, LimitBytes: 0, Period: "2026-11"},
		alerts.BandwidthLimitReached{UsedBytes: most, LimitBytes: most, Period: ""},
		alerts.TransactionsLimitApproaching{Used: 80, Limit: 100, Period: "2026-11", Ratio: 0.8},
		alerts.TransactionsLimitApproaching{Used: 1, Limit: 1, Period: "2026-11", Ratio: 1},
		alerts.TransactionsLimitReached{Used: 0, Limit: 0, Period: "2026-11"},
	}
}

func encode(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // cannot happen: the value was decoded from valid JSON
	}
	return string(data)
}

// contains reports whether text contains all parts.
func contains(text []byte, parts ...string) bool {
	for _, part := range parts {
		if !bytes.Contains(text, []byte(part)) {
			return false
		}
	}
	return true
}
