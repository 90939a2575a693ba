package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

// An authority issues a certificate to each of the receiver's addresses.
type authority struct {
	key         *ecdsa.PrivateKey // for all certificates
	certificate *x509.Certificate
	issued      sync.Map // *tls.Certificate by address
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key}
	a.certificate, err = a.issue(&x509.Certificate{
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	})
	return a, err
}

// issue returns a certificate that is valid for some days. The first one is the authority's own.
func (a *authority) issue(template *x509.Certificate) (*x509.Certificate, error) {
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: "storageapi load"}
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(7 * 24 * time.Hour)
	parent := a.certificate
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// config returns the receiver's TLS configuration, with a separate certificate for each address.
func (a *authority) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		address, ok := hello.Conn.LocalAddr().(*net.TCPAddr)
		if !ok || !address.IP.IsLoopback() {
			return nil, fmt.Errorf("%v is not a loopback address", hello.Conn.LocalAddr())
		}
		if known, ok := a.issued.Load(address.IP.String()); ok {
			return known.(*tls.Certificate), nil
		}
		leaf, err := a.issue(&x509.Certificate{
			IPAddresses: []net.IP{address.IP}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
		if err != nil {
			return nil, err
		}
		known, _ := a.issued.LoadOrStore(address.IP.String(), &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: a.key, Leaf: leaf})
		return known.(*tls.Certificate), nil
	}}
}
