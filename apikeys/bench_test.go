package apikeys_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/memory"
)

// BenchmarkVerify measures Verify with a memory store. Package bolt measures it with a disk.
func BenchmarkVerify(b *testing.B) {
	service := newService(b, memory.New(), apikeys.Config{})
	_, token := create(b, service, time.Time{})
	good := token.Reveal()
	for name, text := range map[string]string{
		"valid": good, "unknown": numbered(1), "wrong checksum": good[:len(good)-7] + "0" + good[len(good)-6:], "malformed": good[:20] + "!" + good[21:],
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = service.Verify(b.Context(), text)
			}
		})
	}
	b.Run("valid, in parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = service.Verify(b.Context(), good)
			}
		})
	})
	b.Run("floor: SHA-256", func(b *testing.B) {
		text := []byte(good)
		for b.Loop() {
			sha256.Sum256(text)
		}
	})
}

func BenchmarkCreate(b *testing.B) {
	service := newService(b, answering(nil), apikeys.Config{})
	b.ReportAllocs()
	for b.Loop() {
		create(b, service, time.Time{})
	}
}

// BenchmarkRecord measures the additional cost of recording the client's network and the used scope
// of a request.
func BenchmarkRecord(b *testing.B) {
	service := newService(b, memory.New(), apikeys.Config{})
	_, token := create(b, service, time.Time{})
	value := token.Reveal()
	p, err := service.Verify(b.Context(), value)
	if err != nil {
		b.Fatal(err)
	}
	for name, address := range map[string]string{"without address": "", "with address": "192.0.2.123"} {
		b.Run("verify "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = service.VerifyFrom(b.Context(), value, address)
			}
		})
	}
	b.Run("scopes", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			service.RecordScopes(&p, readFiles)
		}
	})
}
