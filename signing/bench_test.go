package signing_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// The floor does only the work that every implementation must do. From keyed states, it computes
// the HMAC of the body, and the HMAC of "id.timestamp." followed by the body. For Verify, it also
// compares them. It neither encodes them nor handles headers. The metric "x/floor" is the time of
// the benchmarked call divided by the floor's time in the same run.
type floor struct {
	service, standard hash.Hash
	prefix, body      []byte
	sums              [2][]byte
}

func newFloor(body []byte) *floor {
	return &floor{
		service:  hmac.New(sha256.New, []byte(secretA.Reveal())),
		standard: hmac.New(sha256.New, bytes.Repeat([]byte{'a'}, 32)),
		prefix:   []byte("evt_01J9Z8Q5N3V7W2X4Y6Z8A0B1C2.1772366400."),
		body:     body,
	}
}

func (f *floor) sign() {
	f.service.Reset()
	f.service.Write(f.body)
	f.sums[0] = f.service.Sum(f.sums[0][:0])
	f.standard.Reset()
	f.standard.Write(f.prefix)
	f.standard.Write(f.body)
	f.sums[1] = f.standard.Sum(f.sums[1][:0])
}

// verify compares the sums, not their longer encodings.
func (f *floor) verify() {
	f.sign()
	for _, sum := range f.sums {
		if !hmac.Equal(sum, sum) {
			panic("unequal")
		}
	}
}

// benchmark runs call b.N times, alternating with the floor so that a busy machine slows down both.
// It reports the medians of the rounds and of their ratios, so that interrupted rounds do not
// count. The floor does not allocate, so all reported allocations belong to call.
func benchmark(b *testing.B, floor, call func()) {
	const round = 100
	b.ReportAllocs()
	var calls, ratios []float64 // ns
	for done := 0; done < b.N; done += round {
		n := min(round, b.N-done)
		start := time.Now()
		for range n {
			call()
		}
		middle := time.Now()
		for range n {
			floor()
		}
		end := time.Now()
		calls = append(calls, float64(middle.Sub(start))/float64(n))
		ratios = append(ratios, float64(middle.Sub(start))/float64(end.Sub(middle)))
	}
	slices.Sort(calls)
	slices.Sort(ratios)
	b.ReportMetric(calls[len(calls)/2], "ns/op")
	b.ReportMetric(ratios[len(ratios)/2], "x/floor")
}

const benchmarkID = "evt_01J9Z8Q5N3V7W2X4Y6Z8A0B1C2"

func BenchmarkSign(b *testing.B) {
	for _, size := range []int{256, 2048} {
		body := bytes.Repeat([]byte{'x'}, size)
		floor := newFloor(body).sign
		b.Run(fmt.Sprintf("%dB/floor", size), func(b *testing.B) { benchmark(b, floor, floor) })
		b.Run(fmt.Sprintf("%dB/sign", size), func(b *testing.B) {
			signer, h := newSigner(b, secretA), http.Header{}
			benchmark(b, floor, func() { signer.Sign(h, benchmarkID, signed, body) })
		})
		// Senders with many webhooks make a signer for each request, from a cached secret or from
		// one just read.
		b.Run(fmt.Sprintf("%dB/signer and sign", size), func(b *testing.B) {
			h := http.Header{}
			benchmark(b, floor, func() {
				signer, _ := signing.NewSigner("", secretA)
				signer.Sign(h, benchmarkID, signed, body)
			})
		})
		b.Run(fmt.Sprintf("%dB/secret, signer and sign", size), func(b *testing.B) {
			text, h := secretA.Reveal(), http.Header{}
			benchmark(b, floor, func() {
				secret, _ := signing.ParseSecret(text)
				signer, _ := signing.NewSigner("", secret)
				signer.Sign(h, benchmarkID, signed, body)
			})
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, size := range []int{256, 2048} {
		body := bytes.Repeat([]byte{'x'}, size)
		floor := newFloor(body).verify
		b.Run(fmt.Sprintf("%dB/floor", size), func(b *testing.B) { benchmark(b, floor, floor) })
		b.Run(fmt.Sprintf("%dB/verify", size), func(b *testing.B) {
			h := http.Header{}
			newSigner(b, secretA).Sign(h, benchmarkID, signed, body)
			verifier := newVerifier(b, signing.VerifierConfig{Secrets: []signing.Secret{secretA}, Now: at(signed)})
			benchmark(b, floor, func() {
				if err := verifier.Verify(h, body); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkDataKey compares a DataKey with plain AES-256-GCM that has a prepared key schedule and
// reuses memory.
func BenchmarkDataKey(b *testing.B) {
	const id = "wh_01J9Z8Q5N3V7W2X4Y6Z8A0B1C2"
	block, err := aes.NewCipher(keyOf(1))
	if err != nil {
		b.Fatal(err)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		b.Fatal(err)
	}
	key, additional := bytes.Repeat([]byte{'a'}, 32), []byte("storageapi keyring: secret sealed for\x00"+id)
	sealed := gcm.Seal(nil, nil, key, additional)
	buf := make([]byte, 0, 128)
	floorOpen := func() {
		if _, err := gcm.Open(buf[:0], nil, sealed, additional); err != nil {
			b.Fatal(err)
		}
	}
	floorSeal := func() { gcm.Seal(buf[:0], nil, key, additional) }

	dataKey := signing.DataKeyOf(keyOf(1))
	record := dataKey.Seal(secretA, id)
	b.Run("floor open", func(b *testing.B) { benchmark(b, floorOpen, floorOpen) })
	b.Run("open", func(b *testing.B) {
		benchmark(b, floorOpen, func() {
			if _, err := dataKey.Open(record, id); err != nil {
				b.Fatal(err)
			}
		})
	})
	plain := []byte(secretA.Reveal())
	b.Run("open plain", func(b *testing.B) {
		benchmark(b, floorOpen, func() {
			if _, err := dataKey.Open(plain, id); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("floor seal", func(b *testing.B) { benchmark(b, floorSeal, floorSeal) })
	b.Run("seal", func(b *testing.B) { benchmark(b, floorSeal, func() { dataKey.Seal(secretA, id) }) })
}
