package webhooks_test

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func TestConfig_Valid_IsAccepted(t *testing.T) {
	for name, config := range map[string]webhooks.Config{
		"zero":                         {},
		"a header of its own":          {SignatureHeader: "x-my-signature"},
		"a short timeout":              {Outbound: webhooks.Outbound{Timeout: time.Nanosecond}},
		"no retries":                   {Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}},
		"retries at once":              {Retry: webhooks.RetryPolicy{Delays: []time.Duration{0, 0}}},
		"one at a time":                {Concurrency: webhooks.Concurrency{Total: 1}},
		"less than the default a hook": {Concurrency: webhooks.Concurrency{Total: 3}},
		"all to one webhook":           {Concurrency: webhooks.Concurrency{Total: 9, PerWebhook: 9}},
		"few to one account":           {Concurrency: webhooks.Concurrency{PerAccount: 3}},
		"all to one account":           {Concurrency: webhooks.Concurrency{Total: 9, PerAccount: 9, PerWebhook: 9}},
		"no connection kept":           {Outbound: webhooks.Outbound{MaxIdleConns: -1}},
		"many connections kept":        {Outbound: webhooks.Outbound{MaxIdleConns: 1_000_000}},
		"no jitter":                    {Retry: webhooks.RetryPolicy{Jitter: -1}},
		"all jitter":                   {Retry: webhooks.RetryPolicy{Jitter: 1}},
		"no failing limit":             {Retry: webhooks.RetryPolicy{DisableAfter: -1}},
		"no draining":                  {Outbound: webhooks.Outbound{DrainTimeout: -1}},
		"networks":                     {Outbound: webhooks.Outbound{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}},
		"hosts":                        {Outbound: webhooks.Outbound{AllowHosts: []string{"hooks.internal", "Hooks.Internal.", "localhost", "db", "xn--bcher-kva.example", "a_b.example"}}},
	} {
		if _, err := webhooks.New(memory.New(), config); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConfig_Invalid_ReturnsError(t *testing.T) {
	for name, test := range map[string]struct {
		config webhooks.Config
		field  string
	}{
		"a negative timeout":                {webhooks.Config{Outbound: webhooks.Outbound{Timeout: -1}}, "Outbound.Timeout"},
		"a negative concurrency":            {webhooks.Config{Concurrency: webhooks.Concurrency{Total: -1}}, "Concurrency.Total"},
		"a negative cap":                    {webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: -1}}, "Concurrency.PerWebhook"},
		"a cap above the concurrency":       {webhooks.Config{Concurrency: webhooks.Concurrency{Total: 4, PerWebhook: 5}}, "Concurrency.PerWebhook"},
		"a cap above the default":           {webhooks.Config{Concurrency: webhooks.Concurrency{PerWebhook: 1025}}, "Concurrency.PerWebhook"},
		"an account's cap above all":        {webhooks.Config{Concurrency: webhooks.Concurrency{Total: 4, PerAccount: 5}}, "Concurrency.PerAccount"},
		"a negative account's cap":          {webhooks.Config{Concurrency: webhooks.Concurrency{PerAccount: -1}}, "Concurrency.PerAccount"},
		"a cap above the account's":         {webhooks.Config{Concurrency: webhooks.Concurrency{PerAccount: 4, PerWebhook: 5}}, "Concurrency.PerWebhook"},
		"more connections than all":         {webhooks.Config{Outbound: webhooks.Outbound{MaxIdleConns: 1_000_001}}, "Outbound.MaxIdleConns"},
		"more jitter than all":              {webhooks.Config{Retry: webhooks.RetryPolicy{Jitter: 1.01}}, "Retry.Jitter"},
		"jitter that is no number":          {webhooks.Config{Retry: webhooks.RetryPolicy{Jitter: math.NaN()}}, "Retry.Jitter"},
		"a negative retry":                  {webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Second, -1}}}, "Retry.Delays"},
		"the zero prefix":                   {webhooks.Config{Outbound: webhooks.Outbound{AllowNetworks: []netip.Prefix{{}}}}, "Outbound.AllowNetworks"},
		"an empty host":                     {webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"hooks.internal", ""}}}, "Outbound.AllowHosts"},
		"an address as host":                {webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"127.0.0.1"}}}, "Outbound.AllowHosts"},
		"an odd address as host":            {webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"0x7f.1"}}}, "Outbound.AllowHosts"},
		"an address of IPv6 as host":        {webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"::1"}}}, "Outbound.AllowHosts"},
		"one in brackets":                   {webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"[::1]"}}}, "Outbound.AllowHosts"},
		"a wildcard":                        {webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"*.internal"}}}, "Outbound.AllowHosts"},
		"a host with a port":                {webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"hooks.internal:443"}}}, "Outbound.AllowHosts"},
		"a URL as host":                     {webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"https://hooks.internal"}}}, "Outbound.AllowHosts"},
		"a host that is not ASCII":          {webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"bücher.example"}}}, "Outbound.AllowHosts"},
		"a header that is none":             {webhooks.Config{SignatureHeader: "X Signature"}, "SignatureHeader"},
		"a header with a line end":          {webhooks.Config{SignatureHeader: "X-Signature\r\n"}, "SignatureHeader"},
		"a header of Standard Webhooks":     {webhooks.Config{SignatureHeader: "webhook-signature"}, "SignatureHeader"},
		"a header of Standard Webhooks, id": {webhooks.Config{SignatureHeader: "Webhook-ID"}, "SignatureHeader"},
	} {
		service, err := webhooks.New(memory.New(), test.config)
		if err == nil || service != nil || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%s: got %v, want an error that names %s", name, err, test.field)
		}
		var invalid *apierr.ValidationError
		if test.field != "SignatureHeader" && (!errors.As(err, &invalid) || invalid.Field != test.field) {
			t.Errorf("%s: %v is no ValidationError for %s", name, err, test.field)
		}
	}
	if _, err := webhooks.New(nil, webhooks.Config{}); err == nil {
		t.Error("a nil store is accepted")
	}
}

// The signature must not replace a header that the request needs.
func TestConfig_ReservedSignatureHeader_ReturnsError(t *testing.T) {
	for _, header := range []string{
		"Host", "content-type", "Content-Length", "Transfer-Encoding", "CONNECTION", "User-Agent", "Trailer", "TE", "Upgrade",
		signing.HeaderID, signing.HeaderTimestamp, signing.HeaderSignature,
	} {
		if _, err := webhooks.New(memory.New(), webhooks.Config{SignatureHeader: header}); err == nil || !strings.Contains(err.Error(), "SignatureHeader") {
			t.Errorf("%s: %v", header, err)
		}
	}
}

// Changing the slices of a Config after New does not affect the service.
func TestConfigIsCopied(t *testing.T) {
	networks, hosts := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, []string{"localhost"}
	service := newService(t, memory.New(), webhooks.Config{Outbound: webhooks.Outbound{AllowNetworks: networks, AllowHosts: hosts}})
	hosts[0] = "a.localhost"
	refuse(t, service, "https://a.localhost/")
	networks[0] = netip.MustParsePrefix("0.0.0.0/0")
	refuse(t, service, "https://127.0.0.1/")
	subscribe(t, service, "https://10.0.0.1/")
	subscribe(t, service, "https://localhost/")
}
