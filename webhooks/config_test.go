package webhooks_test

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func TestConfigsThatWork(t *testing.T) {
	for name, config := range map[string]webhooks.Config{
		"zero":                         {},
		"a header of its own":          {SignatureHeader: "x-my-signature"},
		"a short timeout":              {Timeout: time.Nanosecond},
		"no retries":                   {Retries: []time.Duration{}},
		"retries at once":              {Retries: []time.Duration{0, 0}},
		"one at a time":                {Concurrency: 1},
		"less than the default a hook": {Concurrency: 3},
		"all to one webhook":           {Concurrency: 9, PerWebhook: 9},
		"few to one account":           {PerAccount: 3},
		"all to one account":           {Concurrency: 9, PerAccount: 9, PerWebhook: 9},
		"no connection kept":           {MaxIdleConns: -1},
		"many connections kept":        {MaxIdleConns: 1_000_000},
		"no jitter":                    {RetryJitter: -1},
		"all jitter":                   {RetryJitter: 1},
		"no failing limit":             {FailingLimit: -1},
		"no draining":                  {DrainTimeout: -1},
		"networks":                     {AllowNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}},
		"hosts":                        {AllowHosts: []string{"hooks.internal", "Hooks.Internal.", "localhost", "db", "xn--bcher-kva.example", "a_b.example"}},
	} {
		if _, err := webhooks.New(memory.New(), config); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConfigsThatMakeNoSense(t *testing.T) {
	for name, test := range map[string]struct {
		config webhooks.Config
		field  string
	}{
		"a negative timeout":                {webhooks.Config{Timeout: -1}, "Timeout"},
		"a negative concurrency":            {webhooks.Config{Concurrency: -1}, "Concurrency"},
		"a negative cap":                    {webhooks.Config{PerWebhook: -1}, "PerWebhook"},
		"a cap above the concurrency":       {webhooks.Config{Concurrency: 4, PerWebhook: 5}, "PerWebhook"},
		"a cap above the default":           {webhooks.Config{PerWebhook: 1025}, "PerWebhook"},
		"an account's cap above all":        {webhooks.Config{Concurrency: 4, PerAccount: 5}, "PerAccount"},
		"a negative account's cap":          {webhooks.Config{PerAccount: -1}, "PerAccount"},
		"a cap above the account's":         {webhooks.Config{PerAccount: 4, PerWebhook: 5}, "PerWebhook"},
		"more connections than all":         {webhooks.Config{MaxIdleConns: 1_000_001}, "MaxIdleConns"},
		"more jitter than all":              {webhooks.Config{RetryJitter: 1.01}, "RetryJitter"},
		"jitter that is no number":          {webhooks.Config{RetryJitter: math.NaN()}, "RetryJitter"},
		"a negative retry":                  {webhooks.Config{Retries: []time.Duration{time.Second, -1}}, "Retries"},
		"the zero prefix":                   {webhooks.Config{AllowNetworks: []netip.Prefix{{}}}, "AllowNetworks"},
		"an empty host":                     {webhooks.Config{AllowHosts: []string{"hooks.internal", ""}}, "AllowHosts"},
		"an address as host":                {webhooks.Config{AllowHosts: []string{"127.0.0.1"}}, "AllowHosts"},
		"an odd address as host":            {webhooks.Config{AllowHosts: []string{"0x7f.1"}}, "AllowHosts"},
		"an address of IPv6 as host":        {webhooks.Config{AllowHosts: []string{"::1"}}, "AllowHosts"},
		"one in brackets":                   {webhooks.Config{AllowHosts: []string{"[::1]"}}, "AllowHosts"},
		"a wildcard":                        {webhooks.Config{AllowHosts: []string{"*.internal"}}, "AllowHosts"},
		"a host with a port":                {webhooks.Config{AllowHosts: []string{"hooks.internal:443"}}, "AllowHosts"},
		"a URL as host":                     {webhooks.Config{AllowHosts: []string{"https://hooks.internal"}}, "AllowHosts"},
		"a host that is not ASCII":          {webhooks.Config{AllowHosts: []string{"bücher.example"}}, "AllowHosts"},
		"a header that is none":             {webhooks.Config{SignatureHeader: "X Signature"}, "SignatureHeader"},
		"a header with a line end":          {webhooks.Config{SignatureHeader: "X-Signature\r\n"}, "SignatureHeader"},
		"a header of Standard Webhooks":     {webhooks.Config{SignatureHeader: "webhook-signature"}, "SignatureHeader"},
		"a header of Standard Webhooks, id": {webhooks.Config{SignatureHeader: "Webhook-ID"}, "SignatureHeader"},
	} {
		service, err := webhooks.New(memory.New(), test.config)
		if err == nil || service != nil || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%s: got %v, want an error that names %s", name, err, test.field)
		}
		var invalid *webhooks.ValidationError
		if test.field != "SignatureHeader" && (!errors.As(err, &invalid) || invalid.Field != test.field) {
			t.Errorf("%s: %v is no ValidationError for %s", name, err, test.field)
		}
	}
	if _, err := webhooks.New(nil, webhooks.Config{}); err == nil {
		t.Error("a nil store is accepted")
	}
}

// The signature must not take the place of a header that the request needs.
func TestConfigKeepsReservedHeaders(t *testing.T) {
	for _, header := range []string{
		"Host", "content-type", "Content-Length", "Transfer-Encoding", "CONNECTION", "User-Agent", "Trailer", "TE", "Upgrade",
		signing.HeaderID, signing.HeaderTimestamp, signing.HeaderSignature,
	} {
		if _, err := webhooks.New(memory.New(), webhooks.Config{SignatureHeader: header}); err == nil || !strings.Contains(err.Error(), "SignatureHeader") {
			t.Errorf("%s: %v", header, err)
		}
	}
}

// What the caller does with its slices later is nothing to the service.
func TestConfigIsCopied(t *testing.T) {
	networks, hosts := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, []string{"localhost"}
	service := newService(t, memory.New(), webhooks.Config{AllowNetworks: networks, AllowHosts: hosts})
	hosts[0] = "a.localhost"
	refuse(t, service, "https://a.localhost/")
	networks[0] = netip.MustParsePrefix("0.0.0.0/0")
	refuse(t, service, "https://127.0.0.1/")
	subscribe(t, service, "https://10.0.0.1/")
	subscribe(t, service, "https://localhost/")
}
