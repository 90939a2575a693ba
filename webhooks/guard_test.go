package webhooks_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"code.dny.dev/ssrf"

	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// The guard checks the dialed address, not the name: the address of a name can change after the
// webhook is registered.
func TestGuard_NameOfSpecialAddress_Refuses(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t, status(http.StatusOK))
	open := func(networks ...string) func(*webhooks.Config) {
		return func(config *webhooks.Config) {
			config.Outbound.AllowNetworks = nil
			for _, network := range networks {
				config.Outbound.AllowNetworks = append(config.Outbound.AllowNetworks, netip.MustParsePrefix(network))
			}
		}
	}
	for _, host := range []string{
		"hooks.example.com", "HOOKS.example.com.", "six.example.com", "both.example.com", "mapped.example.com", "private.example.com", "azure.example.com",
	} {
		fails(t, attempt(t, receiver.url(host), open()), nowhere)
	}
	// Addresses allowed for other tests are not allowed here.
	fails(t, attempt(t, receiver.url("hooks.example.com"), open("::1/128", "10.0.0.0/8", "127.0.0.2/32")), nowhere)
	fails(t, attempt(t, receiver.url("private.example.com"), open("127.0.0.0/8", "::/0")), nowhere)
	fails(t, attempt(t, receiver.url("mapped.example.com"), open("::/0")), nowhere)
	if n := receiver.conns.Load(); n != 0 {
		t.Fatalf("the receiver was reached %d times", n)
	}

	if got := attempt(t, receiver.url("hooks.example.com"), open("127.0.0.1/32")); got.Effect != driver.Deliver {
		t.Errorf("once it is open: %+v", got.Attempt)
	}
	// If one of the name's addresses is allowed, it is used.
	if got := attempt(t, receiver.url("both.example.com"), open("127.0.0.1/32")); got.Effect != driver.Deliver {
		t.Errorf("once one of two is open: %+v", got.Attempt)
	}
}

// A stored literal address is refused at dialing if the service does not allow it, even if the
// service that created the webhook allowed it.
func TestGuard_StoredAddress_Refuses(t *testing.T) {
	t.Parallel()
	receiver, store, logs := newReceiver(t, status(http.StatusOK)), newLedger(), &testlog.Book{}
	lax := newService(t, store, reaching(logs))
	named := subscribe(t, lax, receiver.url("127.0.0.1")).ID
	subscribe(t, lax, receiver.url("localhost"))
	config := reaching(logs)
	config.Outbound.AllowNetworks = nil
	strict := newService(t, store, config)
	start(t, strict)
	publish(t, strict)
	for range 2 {
		got := store.next(t)
		reason := nowhere
		if got.WebhookID == named {
			reason = blocked
		}
		fails(t, got, reason)
	}
	if receiver.conns.Load() != 0 {
		t.Error("the receiver was reached")
	}
}

// A name with only private addresses causes the same error as an unknown name: an account must not
// learn which names exist in the host's network.
func TestGuard_PrivateName_LooksUnknown(t *testing.T) {
	t.Parallel()
	service := newService(t, memory.New(), webhooks.Config{})
	private, none := try(t, service, "https://private.example.com/"), try(t, service, "https://nowhere.example.com/")
	if private.Class != none.Class || private.Error != none.Error {
		t.Errorf("%+v differs from %+v", private, none)
	}
}

// A name that resolves to a special address is refused, for every range and every form of the
// address.
func TestGuard_EverySpecialAddress_Refuses(t *testing.T) {
	t.Parallel()
	addrs := []netip.Addr{netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("169.254.169.254")}
	for _, prefix := range ssrf.IPv4DeniedPrefixes {
		addrs = append(addrs, ends(prefix)...)
	}
	for _, v4 := range addrs {
		b := v4.As4()
		group := fmt.Sprintf("%x:%x", uint16(b[0])<<8|uint16(b[1]), uint16(b[2])<<8|uint16(b[3]))
		inverse := fmt.Sprintf("%x:%x", ^(uint16(b[0])<<8 | uint16(b[1])), ^(uint16(b[2])<<8 | uint16(b[3])))
		for _, within := range []string{
			"::ffff:" + group, "::" + group, "::ffff:0:" + group, "64:ff9b::" + group, "64:ff9b:1::" + group, "2002:" + group + "::1",
			"2001:0:" + group + "::1", "2001:0:808:808:0:0:" + inverse, "fe80::5efe:" + group,
		} {
			addrs = append(addrs, netip.MustParseAddr(within))
		}
	}
	for _, prefix := range append([]netip.Prefix{
		netip.MustParsePrefix("::/3"), netip.MustParsePrefix("4000::/2"), netip.MustParsePrefix("8000::/1"), // not global unicast
		netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fec0::/10"), netip.MustParsePrefix("ff00::/8"),
	}, ssrf.IPv6DeniedPrefixes...) {
		addrs = append(addrs, ends(prefix)...)
	}
	service := newService(t, memory.New(), webhooks.Config{Outbound: webhooks.Outbound{Timeout: unhurried}})
	for _, addr := range addrs {
		failed(t, try(t, service, "https://"+nameOf(addr)+":65535/"), nowhere)
		failed(t, try(t, service, "https://"+bracketed(addr)+":65535/"), blocked)
	}
}

// spellings are URL hosts that some resolvers map to this machine. The service refuses to register
// them.
var spellings = []string{
	"127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "2130706433", "0177.0.0.1", "017700000001", "0x7f.0.0.1", "0x7f.1", "0x7f000001", "0X7F000001",
	"0", "0.0.0.0", "0x0", "00", "[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[::1%25lo]",
	"[64:ff9b::7f00:1]", "[2002:7f00:1::]", "localhost", "LOCALHOST", "localhost.", "a.localhost", "①②⑦.⓪.⓪.①", "１２７.０.０.１", "127。0。0。1",
	"xn--127-0-0-1.example.com", "%31%32%37.0.0.1", "user@127.0.0.1", "8.8.8.8@127.0.0.1", "127.0.0.1%2f@127.0.0.1", "127.0.0.1%00.example.com",
}

// Even if the store contains such a URL, no spelling of the address leads to this machine.
func TestGuard_EverySpellingOfAddress_Refuses(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t, status(http.StatusOK))
	_, port, _ := net.SplitHostPort(receiver.address)
	service := newService(t, memory.New(), webhooks.Config{Outbound: webhooks.Outbound{RootCAs: trusted().pool(), Timeout: unhurried}})
	for _, scheme := range []string{"https", "http", "HTTPS", "ftp", ""} {
		for _, host := range spellings {
			got := try(t, service, scheme+"://"+host+":"+port+"/")
			switch {
			case got.Class == webhooks.ClassBlocked, got.Class == webhooks.ClassDNS:
			case got.Class == webhooks.ClassInternal && got.Error == "no usable URL":
			default:
				t.Errorf("%s://%s: %+v", scheme, host, got)
			}
		}
	}
	if n := receiver.conns.Load(); n != 0 {
		t.Errorf("the receiver was reached %d times", n)
	}
}

// systemResolver names the environment variable that makes the tests use the system's resolver.
const systemResolver = "WEBHOOKS_TEST_SYSTEM_RESOLVER"

// The C library accepts more texts as addresses than Go does.
func TestGuard_AddressInAnySpellingOfTheSystem_IsRefused(t *testing.T) {
	t.Parallel()
	if os.Getenv(systemResolver) == "" {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGuard_AddressInAnySpellingOfTheSystem_IsRefused$", "-test.v")
		child.Env = append(os.Environ(), systemResolver+"=1", "GODEBUG=netdns=cgo")
		output, err := child.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, output)
		}
		t.Logf("%s", output)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if addrs, err := net.DefaultResolver.LookupHost(ctx, "0x7f.1"); err != nil || len(addrs) != 1 || addrs[0] != "127.0.0.1" {
		t.Skipf("this system takes it for %v, %v", addrs, err)
	}
	receiver := newReceiver(t, status(http.StatusOK))
	service := newService(t, memory.New(), webhooks.Config{Outbound: webhooks.Outbound{RootCAs: trusted().pool(), Timeout: unhurried}})
	for _, host := range []string{"127.1", "2130706433", "0177.0.0.1", "017700000001", "0x7f.0.0.1", "0x7f.1", "0x7f000001", "0X7F000001", "0", "0x0", "localhost"} {
		failed(t, try(t, service, receiver.url(host)), nowhere)
	}
	if n := receiver.conns.Load(); n != 0 {
		t.Errorf("the receiver was reached %d times", n)
	}
}

// DNS rebinding: a name resolves to a harmless address when it is checked, and to this machine
// when it is used.
func TestRebinding(t *testing.T) {
	t.Parallel()
	const name = "rebinding.example.com"
	harmless, private := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")
	canary := newReceiver(t, status(http.StatusOK))
	_, port, _ := net.SplitHostPort(canary.address)
	listener, err := net.Listen("tcp", net.JoinHostPort(harmless.String(), port))
	if err != nil {
		t.Skip(err) // no such address on this machine
	}
	honest := &receiver{}
	honest.serve(t, tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{goodCertificate()}}), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // the next attempt has to dial
	})
	service := newService(t, memory.New(), webhooks.Config{
		Outbound: webhooks.Outbound{RootCAs: trusted().pool(), AllowNetworks: []netip.Prefix{netip.PrefixFrom(harmless, 32)}, Timeout: unhurried},
	})
	answers := [][]netip.Addr{{harmless}, {private}, {harmless}, {private, harmless}, {harmless, private}, {private, private}, {}, {harmless}, {private}}
	takeTurns(name, answers...)
	for i, answer := range answers {
		got := try(t, service, canary.url(name))
		if slices.Contains(answer, harmless) {
			if got.Status != http.StatusOK {
				t.Errorf("%d, %v: %+v", i, answer, got)
			}
		} else {
			failed(t, got, nowhere)
		}
		if n := lookups(name); n != i+1 {
			t.Errorf("after %d attempts: %d lookups", i+1, n)
		}
	}
	if got, want := len(honest.requests()), 5; got != want {
		t.Errorf("%d requests, want %d", got, want)
	}
	if n := canary.conns.Load(); n != 0 {
		t.Errorf("this machine was reached %d times", n)
	}
}

func TestAllowHosts(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t, status(http.StatusOK))
	config := reaching(&testlog.Book{})
	config.Outbound.AllowNetworks, config.Outbound.AllowHosts = nil, []string{"Hooks.Example.COM", "azure.example.com.", "localhost", "six.example.com"}
	service := newService(t, memory.New(), config)
	for _, host := range []string{"hooks.example.com", "HOOKS.example.com", "hooks.example.com."} {
		if got := try(t, service, receiver.url(host)); got.Error != "" {
			t.Errorf("%s: %+v", host, got)
		}
		subscribe(t, service, receiver.url(host))
	}
	subscribe(t, service, "https://LocalHost./")
	before := receiver.conns.Load()
	// These settings allow neither another name nor the address itself.
	for _, host := range []string{"other.example.com", "a.hooks.example.com", "example.com", "xhooks.example.com", "hooks.example.com.example.com", "a.localhost"} {
		failed(t, try(t, service, receiver.url(host)), nowhere)
	}
	failed(t, try(t, service, receiver.url("127.0.0.1")), blocked)
	failed(t, try(t, service, receiver.url("::1")), blocked)
	refuse(t, newService(t, memory.New(), config), receiver.url("127.0.0.1"))
	refuse(t, newService(t, memory.New(), config), "https://a.localhost/")
	if receiver.conns.Load() != before {
		t.Error("the receiver was reached")
	}
	// TLS is still verified.
	config.Outbound.RootCAs = newAuthority().pool()
	failed(t, try(t, newService(t, memory.New(), config), receiver.url("hooks.example.com")), tlsUnknown)
}

// A connection that was made for an allowed name is not used for another name.
func TestAllowHosts_Connection_IsNotUsedForOthers(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t, status(http.StatusOK))
	config := reaching(&testlog.Book{})
	config.Outbound.AllowNetworks, config.Outbound.AllowHosts = nil, []string{"hooks.example.com"}
	service := newService(t, memory.New(), config)
	for range 3 {
		if got := try(t, service, receiver.url("hooks.example.com")); got.Error != "" {
			t.Fatalf("%+v", got)
		}
		failed(t, try(t, service, receiver.url("other.example.com")), nowhere)
	}
	if n := receiver.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// User information in a stored URL is not sent.
func TestUserInformationIsNotSent(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t, status(http.StatusOK))
	service := newService(t, memory.New(), reaching(&testlog.Book{}))
	url := strings.Replace(receiver.url("hooks.example.com"), "https://", "https://user:SENTINEL@", 1)
	if got := try(t, service, url); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	if got := receiver.requests()[0]; strings.Contains(fmt.Sprint(got.Header, got.Host), "SENTINEL") || got.Header.Get("Authorization") != "" {
		t.Errorf("it was: %v", got.Header)
	}
}
