package webhooks_test

import (
	"net/netip"
	"strings"
	"testing"

	"code.dny.dev/ssrf"

	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// urlOf returns a URL of exactly n characters.
func urlOf(n int) string {
	const base = "https://example.com/"
	return base + strings.Repeat("x", n-len(base))
}

var label63 = strings.Repeat("a", 63)

func TestCheckURL_Valid_IsAccepted(t *testing.T) {
	for _, url := range []string{
		"https://example.com", "https://example.com/", "https://example.com/hooks/1?token=a%20b&x=%zz", "HTTPS://EXAMPLE.COM/Hooks",
		"https://a", "https://a.b.c.d.e", "https://example.com./", "https://xn--bcher-kva.example/", "https://under_score.example.com/",
		"https://1password.com/", "https://0x7f.example.com/", "https://127.0.0.1.example.com/", "https://localhost.example.com/",
		"https://" + label63 + ".com/", "https://" + strings.Repeat(label63+".", 3) + strings.Repeat("a", 61),
		"https://example.com:1/", "https://example.com:443/", "https://example.com:65535/", "https://example.com:8443",
		"https://8.8.8.8/", "https://8.8.8.8:8443/", "https://1.1.1.1/", "https://[2606:4700:4700::1111]/", "https://[2606:4700:4700::1111]:8443/",
		"https://example.com//double//slash", "https://example.com/../..", "https://example.com/a:b@c", "https://example.com?q=a@b",
		"https://example.com/%00%0a", `https://example.com/{}|"<>^` + "`", urlOf(2048),
	} {
		if _, err := newClocked(t).Create(t.Context(), account, webhooks.CreateParams{URL: url, Events: onBalance}); err != nil {
			t.Errorf("%.60q is refused: %v", url, err)
		}
	}
}

func TestCheckURL_Invalid_IsRefused(t *testing.T) {
	for rule, urls := range map[string][]string{
		"https": {
			"http://example.com/", "ftp://example.com/", "wss://example.com/", "httpss://example.com/", "file:///etc/passwd",
			"gopher://example.com/", "data:text/plain,x", "javascript:alert(1)", "://example.com", "//example.com/", "example.com", "/hooks", "hooks",
		},
		"a host": {
			"https://", "https:///", "https:///hooks", "https:", "https:/example.com", "https:example.com", "https://:443/", "https://?x", "https://.",
			"https://..", "https://.example.com", "https://example..com", "https://example.com..", "https://-example.com", "https://example-.com",
			"https://a.-b.com", "https://ex ample.com", "https://ex%61mple.com", "https://ex%2eample.com", "https://example.com%00/",
			"https://example.com%2f@8.8.8.8", "https://exa*mple.com", "https://*.example.com", "https://exa,mple.com", "https://exa$mple.com",
			"https://" + label63 + "a.com/", "https://" + strings.Repeat(label63+".", 3) + strings.Repeat("a", 62), "https://[]/",
			"https://[example.com]/", "https://[1.2.3.4]/", "https://[::1", "https://::1/", "https://2606:4700:4700::1111/",
			"https://[2606:4700:4700::1111%25eth0]/", "https://[2606:4700:4700::1111%eth0]/", "https://[v1.x]/", "https://[2606:4700:4700::1111]x/",
		},
		"no user information": {
			"https://user@example.com/", "https://user:password@example.com/", "https://@example.com/", "https://:@example.com/",
			"https://:password@example.com/", "https://example.com@8.8.8.8/", "https://8.8.8.8@example.com/", "https://a@b@example.com/",
		},
		"no fragment": {
			"https://example.com/#", "https://example.com/#fragment", "https://example.com#@8.8.8.8/", "https://example.com/?q#", "#",
		},
		"a port": {
			"https://example.com:/", "https://example.com:0/", "https://example.com:65536/", "https://example.com:-1/", "https://example.com:+1/",
			"https://example.com:http/", "https://example.com:4 43/", "https://example.com:4294967739/", "https://example.com:443:443/",
			"https://example.com:99999999999999999999/", "https://[2606:4700:4700::1111]:/", "https://example.com:0x1bb/",
		},
		"plain ASCII": {
			"https://example.com\\@8.8.8.8/", "https:\\\\example.com/", "https://example.com/a\\b", " https://example.com/", "https://example.com/ ",
			"https://example.com/a b", "https://example.com/\n", "https://exam\nple.com/", "https://example.com/\r\nHost: x", "https://example.com/\t",
			"https://example.com/\x00", "https://example.com/\x7f", "https://example.com/\x1b[31m", "https://bücher.example/", "https://example.com/ü",
			"https://example。com/", "https://ⓔxample.com/", "https://①②⑦.⓪.⓪.①/", "https://example.com/\u200b", "https://example.com/\u202e",
			"https://example.com/\xff", "https://example.com/%zz", "https://example.com/%",
		},
		"at most 2,048 characters": {urlOf(2049), urlOf(1 << 20)},
		"something":                {""},
	} {
		for _, url := range urls {
			t.Run(rule, func(t *testing.T) { refuse(t, newClocked(t), url) })
		}
	}
}

// Addresses of this machine and of networks that only this machine should reach are refused, in
// every spelling that some resolver understands.
func TestCheckURL_SpecialAddress_IsRefused(t *testing.T) {
	hosts := []string{
		"127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "127.255.255.254", "2130706433", "0177.0.0.1", "0177.0.0.01", "017700000001",
		"0x7f.0.0.1", "0x7f.1", "0x7f000001", "0X7F000001", "127.0.0.0x1", "127.0.0.01", "00127.0.0.1", "127.0.0.1.0x", "127.0.0.256", "127.0.0.1.1",
		"0", "0.0.0.0", "0x0", "00", "0.0.0.0x", "1", "4294967295", "4294967296", "255.255.255.255", "08.8.8.8", "8.8.8.010", "8.8.2056", "134744072",
		"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "169.254.169.254", "169.254.170.2", "0251.0376.0251.0376",
		"0xa9fea9fe", "2852039166", "168.63.129.16", "0xa83f8110", "168.63.129.020", "224.0.0.1", "240.0.0.1",
		"[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:1]", "[::127.0.0.1]", "[::ffff:8.8.8.8]",
		"[::ffff:168.63.129.16]", "[64:ff9b::7f00:1]", "[64:ff9b::8.8.8.8]", "[64:ff9b:1::1]", "[fe80::1]", "[fe80::1%25lo]", "[fc00::1]", "[fd00:ec2::254]",
		"[ff02::1]", "[2002:7f00:1::]", "[2002:a9fe:a9fe::]", "[2001::1]", "[2001:db8::1]", "[100::1]", "[5f00::1]", "[3fff::1]", "[4000::1]",
		"localhost", "LOCALHOST", "LocalHost.", "foo.localhost", "a.b.localhost.",
	}
	for _, prefix := range append(append([]netip.Prefix{}, ssrf.IPv4DeniedPrefixes...), ssrf.IPv6DeniedPrefixes...) {
		for _, addr := range ends(prefix) {
			hosts = append(hosts, bracketed(addr))
		}
	}
	service := newClocked(t)
	for _, host := range hosts {
		t.Run(host, func(t *testing.T) {
			refuse(t, service, "https://"+host+"/")
			refuse(t, service, "https://"+host+":8443/hooks?x=y")
		})
	}
}

// ends returns the first and the last address of a prefix.
func ends(prefix netip.Prefix) []netip.Addr {
	last := prefix.Masked().Addr().AsSlice()
	for bit := prefix.Bits(); bit < 8*len(last); bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(last)
	return []netip.Addr{prefix.Masked().Addr(), addr}
}

func bracketed(addr netip.Addr) string {
	if addr.Is4() {
		return addr.String()
	}
	return "[" + addr.StringExpanded() + "]"
}

// refuse fails the test unless a webhook with the URL is refused and not stored. The error must
// not repeat the URL, which may hold a secret.
func refuse(t *testing.T, s *webhooks.WebhookService, url string) {
	t.Helper()
	webhook, err := s.Create(t.Context(), account, webhooks.CreateParams{URL: url, Events: onBalance})
	if err == nil {
		t.Errorf("%.60q is accepted", url)
		return
	}
	wantInvalid(t, err, "url")
	if len(url) > 30 && strings.Contains(err.Error(), url) {
		t.Errorf("the error repeats the URL: %v", err)
	}
	if list, err := s.List(t.Context(), account, webhooks.WebhookQuery{Limit: 1}); err != nil || len(list.Webhooks) != 0 || webhook.ID != "" {
		t.Errorf("%.60q left %v, %v", url, list, err)
	}
}

func TestAllowNetworks_AllowsOnlyNamedNetworks(t *testing.T) {
	prefixes := func(texts ...string) (list []netip.Prefix) {
		for _, text := range texts {
			list = append(list, netip.MustParsePrefix(text))
		}
		return list
	}
	tests := []struct {
		open    []netip.Prefix
		allowed []string
		refused []string
	}{
		{nil, nil, []string{"127.0.0.1", "[::1]", "10.0.0.1", "localhost"}},
		{prefixes("127.0.0.0/8"), []string{"127.0.0.1", "127.255.0.1", "localhost", "a.localhost"}, []string{"[::1]", "10.0.0.1", "127.1", "0x7f.0.0.1", "[::ffff:127.0.0.1]"}},
		{prefixes("::1/128"), []string{"[::1]", "localhost"}, []string{"127.0.0.1", "[::2]", "[::]"}},
		{prefixes("10.1.0.0/16"), []string{"10.1.2.3"}, []string{"10.2.0.1", "localhost", "127.0.0.1"}},
		{prefixes("10.0.0.0/8", "fd00::/8"), []string{"10.1.2.3", "[fd12::1]"}, []string{"[fe80::1]", "192.168.0.1"}},
		{prefixes("127.0.0.1/8"), []string{"127.9.9.9"}, nil}, // the prefix need not be masked
		{prefixes("168.63.129.16/32"), []string{"168.63.129.16"}, []string{"127.0.0.1"}},
		{prefixes("0.0.0.0/0"), []string{"127.0.0.1", "10.0.0.1", "168.63.129.16", "localhost"}, []string{"[::1]"}},
		{prefixes("::/0"), []string{"[::1]", "[fe80::1]", "[::ffff:127.0.0.1]"}, []string{"127.0.0.1"}},
	}
	for _, test := range tests {
		service := newService(t, memory.New(), webhooks.Config{Outbound: webhooks.Outbound{AllowNetworks: test.open}})
		for _, host := range test.refused {
			refuse(t, service, "https://"+host+"/")
		}
		for _, host := range test.allowed {
			subscribe(t, service, "https://"+host+"/")
		}
	}
}
