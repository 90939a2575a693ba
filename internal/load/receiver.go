package main

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// receiverVariable is the environment variable that makes this program the receiver. Its value is
// the fault.
const receiverVariable = "STORAGEAPI_LOAD_RECEIVER"

// Faults of the receiver at its request number faultAt.
const (
	faultLose = "lose" // respond without reporting the event
	faultExit = "exit"
	faultAt   = 300 // after the events of [host.prepare], unless there are more webhooks
)

const maxHosts = 100_000

// A receiver controls the receiver's process from the program that starts it.
type receiver struct {
	port    int
	trusted *x509.CertPool
	cmd     *exec.Cmd
	stdin   io.Closer
	ended   chan struct{} // closed after the last report
}

// An opening is the receiver's first message. Reports follow.
type opening struct {
	Port      int
	Authority []byte // the authority's certificate, DER
}

// A report holds the arrivals since the last report.
type report struct {
	Arrivals  []arrival
	Processor time.Duration // total processor time of the process
}

// An arrival is the arrival of a request.
type arrival struct {
	Number int   // of the event
	At     int64 // Unix nanoseconds of the clock shared by all processes
}

// startReceiver starts the process. The ledger gets its reports.
func startReceiver(hosts int, fault string, l *ledger) (*receiver, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &receiver{cmd: exec.Command(self), ended: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), receiverVariable+"="+fault)
	r.cmd.Stderr = os.Stderr
	in, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	r.stdin = in
	var begun opening
	reports := gob.NewDecoder(bufio.NewReader(out))
	if err := errors.Join(gob.NewEncoder(in).Encode(hosts), reports.Decode(&begun)); err != nil {
		return nil, errors.Join(fmt.Errorf("start the receiver: %w", err), in.Close(), r.cmd.Wait())
	}
	authority, err := x509.ParseCertificate(begun.Authority)
	if err != nil {
		return nil, errors.Join(err, in.Close(), r.cmd.Wait())
	}
	r.port, r.trusted = begun.Port, x509.NewCertPool()
	r.trusted.AddCert(authority)
	go func() {
		defer close(r.ended)
		for {
			var next report
			if err := reports.Decode(&next); err != nil {
				l.end(fmt.Errorf("reports from the receiver ended: %w", err))
				return
			}
			l.note(next)
		}
	}()
	return r, nil
}

// url returns the URL of a host. Hosts have consecutive addresses, starting at 127.0.0.1.
func (r *receiver) url(host int) string {
	n := host + 1
	return fmt.Sprintf("https://127.%d.%d.%d:%d/hook", n>>16, n>>8&0xff, n&0xff, r.port)
}

// stop ends the process.
func (r *receiver) stop() error {
	_ = r.stdin.Close()
	<-r.ended
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("the receiver: %w", err)
	}
	return nil
}

// receive runs the receiver's process until its input ends. It ignores a terminal's interrupt,
// which both processes get, because the sender handles it.
func receive(in io.Reader, out io.Writer, fault string) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	var hosts int
	if err := gob.NewDecoder(in).Decode(&hosts); err != nil {
		return err
	}
	a, err := newAuthority()
	if err != nil {
		return err
	}
	at := "127.0.0.1:0"
	if hosts > 1 {
		at = "0.0.0.0:0" // the only address that covers 127.0.0.0/8; the authority refuses others
	}
	listener, err := net.Listen("tcp4", at)
	if err != nil {
		return err
	}
	reports := gob.NewEncoder(out)
	if err := reports.Encode(opening{Port: listener.Addr().(*net.TCPAddr).Port, Authority: a.certificate.Raw}); err != nil {
		return err
	}

	var mu sync.Mutex
	var arrivals []arrival
	requests := 0
	server := &http.Server{
		TLSConfig: a.config(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			now := time.Now().UnixNano()
			body, err := io.ReadAll(r.Body)
			number, ok := numberIn(body)
			if err != nil || !ok {
				http.Error(w, "not an event of this run", http.StatusBadRequest)
				return
			}
			mu.Lock()
			requests++
			faulty := fault != "" && requests == faultAt
			if !faulty {
				arrivals = append(arrivals, arrival{number, now})
			}
			mu.Unlock()
			if faulty && fault == faultExit {
				os.Exit(1)
			}
			w.WriteHeader(http.StatusNoContent)
		}),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	ends := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(ends)
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ends:
			return server.Close()
		case <-tick.C:
		}
		mu.Lock()
		next := report{arrivals, processorTime()}
		arrivals = nil
		mu.Unlock()
		if err := reports.Encode(next); err != nil {
			return err
		}
	}
}

// numberIn returns the number of the event, which is the value of "used" in its data.
func numberIn(body []byte) (number int, ok bool) {
	_, rest, _ := bytes.Cut(body, []byte(`"used":`))
	digits, _, _ := bytes.Cut(rest, []byte(","))
	number, err := strconv.Atoi(string(digits))
	return number, err == nil
}
