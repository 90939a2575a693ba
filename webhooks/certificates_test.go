package webhooks_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"sync"
	"time"
)

// An authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

var (
	longAgo = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC) // a bubble's clock begins in 2000
	farOff  = time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)

	// trusted is the authority that signs the certificates of test receivers.
	trusted = sync.OnceValue(newAuthority)

	// goodCertificate is a certificate that the tests' clients accept.
	goodCertificate = sync.OnceValue(func() tls.Certificate {
		return trusted().issue(longAgo, farOff, "*.example.com", "localhost", "127.0.0.1", "::1")
	})
)

func newAuthority() *authority {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "Test CA"}, SerialNumber: big.NewInt(1), NotBefore: longAgo, NotAfter: farOff,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := &authority{certificate: template, key: newKey()}
	signed := a.sign(template, a.key)
	a.certificate = must(x509.ParseCertificate(signed))
	return a
}

// issue returns a certificate for the hosts, which are names or addresses.
func (a *authority) issue(from, to time.Time, hosts ...string) tls.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: to, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key := newKey()
	return tls.Certificate{Certificate: [][]byte{a.sign(template, key)}, PrivateKey: key}
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	return must(x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key))
}

// pool returns a certificate pool that holds only the authority.
func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }
