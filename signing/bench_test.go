package signing_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// The floor is what no implementation can do without: the two HMACs, of the body and of the id, timestamp and body, with
// states that are keyed already; encoding them and making the headers is not in it. "x/floor" is how much longer the benchmarked call takes than that, measured in the
// same run.
func newFloor(body []byte) func() {
	service := hmac.New(sha256.New, []byte(secretA.Reveal()))
	standard := hmac.New(sha256.New, bytes.Repeat([]byte{'a'}, 32))
	message := append([]byte("evt_01J9Z8Q5N3V7W2X4Y6Z8A0B1C2.1772366400."), body...)
	sum := make([]byte, 0, sha256.Size)
	return func() {
		service.Reset()
		service.Write(body)
		sum = service.Sum(sum[:0])
		standard.Reset()
		standard.Write(message)
		sum = standard.Sum(sum[:0])
	}
}

// benchmark runs call b.N times, taking turns with the floor so that a busy machine slows both alike.
func benchmark(b *testing.B, floor, call func()) {
	const turn = 10_000
	b.ReportAllocs()
	var inCall, inFloor time.Duration
	b.ResetTimer()
	for done := 0; done < b.N; done += turn {
		n := min(turn, b.N-done)
		start := time.Now()
		for range n {
			call()
		}
		inCall += time.Since(start)

		b.StopTimer()
		start = time.Now()
		for range n {
			floor()
		}
		inFloor += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(float64(inCall)/float64(inFloor), "x/floor")
}

func BenchmarkSign(b *testing.B) {
	for _, size := range []int{256, 2048} {
		body := bytes.Repeat([]byte{'x'}, size)
		floor := newFloor(body)
		b.Run(fmt.Sprintf("%dB/floor", size), func(b *testing.B) { benchmark(b, floor, floor) })
		b.Run(fmt.Sprintf("%dB/sign", size), func(b *testing.B) {
			signer, h := newSigner(b, secretA), http.Header{}
			benchmark(b, floor, func() { signer.Sign(h, "evt_01J9Z8Q5N3V7W2X4Y6Z8A0B1C2", signed, body) })
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, size := range []int{256, 2048} {
		body := bytes.Repeat([]byte{'x'}, size)
		floor := newFloor(body)
		b.Run(fmt.Sprintf("%dB/floor", size), func(b *testing.B) { benchmark(b, floor, floor) })
		b.Run(fmt.Sprintf("%dB/verify", size), func(b *testing.B) {
			h := http.Header{}
			newSigner(b, secretA).Sign(h, "evt_01J9Z8Q5N3V7W2X4Y6Z8A0B1C2", signed, body)
			verifier := newVerifier(b, signing.VerifierConfig{Secrets: []signing.Secret{secretA}, Now: at(signed)})
			benchmark(b, floor, func() {
				if err := verifier.Verify(h, body); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
