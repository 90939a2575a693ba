package driver_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func manyScopes(t *testing.T, n int) scopes.Set {
	t.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("area%d:read", i))
	}
	set, err := scopes.FromNames(names)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestActivity_ManyScopesAndNetworks_StaysSmall(t *testing.T) {
	for count, maxSize := range map[int]int{1: 80, 100: 256, 128: 259} {
		key := driver.Key{Scopes: manyScopes(t, count)}
		for i, scope := range key.Scopes.Names() {
			at := noon.AddDate(0, 0, i)
			key.Activity = key.Activity.Add(driver.ActivityOf(key.Scopes, scopes.Of(scopes.Scope(scope)), at), true)
			address := netip.AddrFrom16([16]byte{0x20, 1, byte(i)})
			key.Activity = key.Activity.Add(driver.ActivityFrom(address, at), true)
		}
		used := make(map[string]string)
		for _, use := range key.ScopesUsed() {
			used[use.Scope.String()] = use.LastUsedOn.Format(time.DateOnly)
		}
		if len(used) != count || used["area0:read"] != "2026-11-20" || len(key.Activity) > maxSize {
			t.Errorf("%d scopes: %d used, in %d bytes, want at most %d", count, len(used), len(key.Activity), maxSize)
		}
		if count == 100 && len(key.NetworksUsed()) < 5 {
			t.Errorf("%d networks", len(key.NetworksUsed()))
		}
	}
}

// The order in which activity is added does not matter, except for networks of the same day, and
// adding it again changes nothing.
func TestActivity_Add_IsIdempotentAndCommutes(t *testing.T) {
	held := scopes.Of(scopes.FilesRead, scopes.FilesWrite, scopes.AccountRead)
	random := func() driver.KeyActivity {
		at := noon.Add(time.Duration(rand.IntN(10*24)) * time.Hour)
		switch rand.IntN(3) {
		case 0:
			return driver.ActivityOf(held, scopes.Of(scopes.Scope(scopes.Specified().Names()[rand.IntN(13)])), at)
		case 1:
			return driver.ActivityFrom(netip.AddrFrom4([4]byte{192, 0, byte(rand.IntN(4))}), at)
		}
		return driver.ActivityRefused(auth.RefusedRequest{At: at, Outcome: observe.ScopeMissing, Route: fmt.Sprint("GET /", rand.IntN(3))})
	}
	key := func(a driver.KeyActivity) driver.Key { return driver.Key{Scopes: held, Activity: a} }
	prefixes := cmpopts.EquateComparable(netip.Prefix{})
	networks := cmpopts.SortSlices(func(a, b driver.NetworkUse) int { return a.Network.Compare(b.Network) })
	for range 500 {
		var forth, back driver.KeyActivity
		var list []driver.KeyActivity
		for range 12 {
			list = append(list, random())
			forth = forth.Add(list[len(list)-1], true)
		}
		for i := range list {
			back = back.Add(list[len(list)-1-i], rand.IntN(2) == 0)
		}
		if again := forth.Add(list[rand.IntN(len(list))], false); again != forth {
			t.Fatalf("adding again changes %q to %q", forth, again)
		}
		a, b := key(forth), key(back)
		if diff := cmp.Diff(a.ScopesUsed(), b.ScopesUsed()) + cmp.Diff(a.Refusals(), b.Refusals(), prefixes) + cmp.Diff(a.NetworksUsed(), b.NetworksUsed(), networks, prefixes); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestActivity_Damaged_IsReadAsFarAsPossible(t *testing.T) {
	whole := driver.ActivityOf(scopes.Specified(), scopes.Specified(), noon).
		Add(driver.ActivityFrom(netip.MustParseAddr("192.0.2.1"), noon), true).
		Add(driver.ActivityRefused(auth.RefusedRequest{At: noon, Route: "GET /"}), true)
	for range 20_000 {
		damaged := []byte(whole)
		for range 1 + rand.IntN(4) {
			damaged[rand.IntN(len(damaged))] = byte(rand.Uint32())
		}
		key := driver.Key{Scopes: scopes.Specified(), Activity: driver.KeyActivity(damaged[:rand.IntN(len(damaged)+1)])}
		key.Activity = key.Activity.Add(whole, rand.IntN(2) == 0) // must not panic
		key.ScopesUsed()
		key.NetworksUsed()
		key.Refusals()
	}
}

func TestRefusals_KeepsTheLatest(t *testing.T) {
	var key driver.Key
	for i := range 250 {
		key.Activity = key.Activity.Add(driver.ActivityRefused(auth.RefusedRequest{At: noon.Add(time.Duration(i) * time.Second), Route: fmt.Sprint("GET /", i%120)}), i%2 == 0)
	}
	list := key.Refusals()
	if len(list) != 100 || !list[0].At.Equal(noon.Add(249*time.Second)) || list[0].Route != "GET /9" || !list[99].At.Equal(noon.Add(150*time.Second)) {
		t.Errorf("%d refusals, from %+v to %+v", len(list), list[0], list[len(list)-1])
	}
	secret := string(make([]byte, 1000))
	key.Activity = driver.ActivityRefused(auth.RefusedRequest{At: noon, Route: secret, Missing: secret})
	if len(key.Activity) > 600 {
		t.Errorf("a refusal takes %d bytes", len(key.Activity))
	}
}
