// Package cluster runs separate PostgreSQL servers for tests, benchmarks and examples. It uses the
// installed initdb and postgres, or those in the directory STORAGEAPI_TEST_POSTGRES_BIN.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// BinEnv names the environment variable that holds the directory of the binaries to use. By
// default, the newest installed binaries are used.
const BinEnv = "STORAGEAPI_TEST_POSTGRES_BIN"

// ErrNotInstalled means that no binaries were found; its text explains how to get them.
var ErrNotInstalled = errors.New("PostgreSQL is not installed: no initdb in PATH or /usr/lib/postgresql/*/bin (on Debian: apt-get install postgresql), and " + BinEnv + " is not set")

// A Cluster is a running server with a separate directory, which also contains the server's Unix
// socket.
type Cluster struct {
	dir     string
	bin     string
	owner   owner
	options []string

	server *exec.Cmd
	alive  io.Closer // the server ends when this is closed or this process ends
	log    bytes.Buffer
}

// Start makes a cluster and starts its server with settings such as "fsync=off". The caller must
// stop it. The server runs as the user of this process. PostgreSQL refuses to run as root, so
// instead of root the server uses the user postgres or, if there is none, nobody.
func Start(settings ...string) (*Cluster, error) {
	return start(settings, func(c *Cluster) error {
		return c.run(filepath.Join(c.bin, "initdb"), "-D", c.data(), "-U", "storageapi", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	})
}

// Standby makes and starts a synchronous streaming standby of the cluster. To copy the files it
// kills and restarts the cluster. Afterwards commits wait for the standby.
func (c *Cluster) Standby() (*Cluster, error) {
	standby, err := start([]string{"primary_conninfo=" + c.DSN("postgres")}, func(s *Cluster) error {
		c.Kill() // so that its files stay consistent while they are copied
		err := s.run("/bin/sh", "-c", `cp -Rp "$1" "$2" && touch "$2/standby.signal"`, "sh", c.data(), s.data())
		return errors.Join(err, c.Restart())
	})
	if err != nil {
		return nil, err
	}
	if err := c.do(`alter system set synchronous_standby_names = '*'`, `select pg_reload_conf()`); err != nil {
		standby.Stop()
		return nil, err
	}
	return standby, nil
}

// Promote makes a standby a primary.
func (c *Cluster) Promote() error { return c.do(`select pg_promote()`) }

// do runs statements.
func (c *Cluster) do(statements ...string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, c.DSN("postgres"))
	if err != nil {
		return err
	}
	for _, sql := range statements {
		if _, execErr := conn.Exec(ctx, sql); err == nil {
			err = execErr
		}
	}
	return errors.Join(err, conn.Close(ctx))
}

// start creates a cluster's files with create, and starts its server.
func start(settings []string, create func(*Cluster) error) (*Cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "storageapi-postgres-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, bin: bin}
	for _, setting := range append([]string{"listen_addresses=", "unix_socket_directories=" + dir, "max_connections=200"}, settings...) {
		c.options = append(c.options, "-c", setting)
	}
	if os.Geteuid() == 0 {
		err = c.chooseOwner()
	}
	if err == nil {
		err = create(c)
	}
	if err == nil {
		err = c.Restart()
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return c, nil
}

// binaries returns the directory of the binaries.
func binaries() (string, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		return dir, nil
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 {
		version := func(path string) int {
			n, _ := strconv.Atoi(strings.Split(path, "/")[4])
			return n
		}
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	return "", ErrNotInstalled
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

func (c *Cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir
	c.owner.group(cmd)
	return cmd
}

// run runs a command and waits for its end.
func (c *Cluster) run(name string, args ...string) error {
	if out, err := c.command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("make a cluster: %w: %s", err, out)
	}
	return nil
}

// Restart starts the server again after Kill, and waits until it answers.
func (c *Cluster) Restart() error {
	// The shell ends the server when its standard input ends. A killed server leaves processes
	// behind for a moment, and a new server cannot start until they are gone.
	const script = `
		exec 3<&0
		(while read -r line <&3; do :; done; kill -QUIT 0) &
		tries=0
		until "$@" </dev/null || [ $tries = 50 ]; do tries=$((tries + 1)); sleep 0.1; done`
	for _, lock := range []string{filepath.Join(c.data(), "postmaster.pid"), filepath.Join(c.dir, ".s.PGSQL.5432.lock")} {
		_ = os.Remove(lock)
	}
	args := append([]string{"-c", script, "sh", filepath.Join(c.bin, "postgres"), "-D", c.data()}, c.options...)
	server := c.command("/bin/sh", args...)
	alive, err := server.StdinPipe()
	if err != nil {
		return err
	}
	c.log.Reset()
	server.Stdout, server.Stderr = &c.log, &c.log
	if err := server.Start(); err != nil {
		return err
	}
	c.server, c.alive = server, alive
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		conn, err := pgx.Connect(ctx, c.DSN("postgres"))
		cancel()
		if err == nil {
			return conn.Close(context.Background())
		}
		if time.Now().After(end) {
			c.Kill()
			return fmt.Errorf("the server does not answer: %w: %s", err, c.log.String())
		}
	}
}

// DSN returns the connection string of a database. If other clusters are given, it connects to the
// primary among all of them.
func (c *Cluster) DSN(database string, others ...*Cluster) string {
	hosts, ports := c.dir, "5432"
	for _, other := range others {
		hosts, ports = hosts+","+other.dir, ports+",5432"
	}
	dsn := "host=" + hosts + " port=" + ports + " user=storageapi dbname=" + database
	if len(others) > 0 {
		dsn += " target_session_attrs=read-write"
	}
	return dsn
}

// CPU returns the processor time that the server's processes have used, including ended processes.
// On systems other than Linux it returns 0.
func (c *Cluster) CPU() (used time.Duration) {
	postmaster, _, _ := strings.Cut(string(readFile(filepath.Join(c.data(), "postmaster.pid"))), "\n")
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		_, rest, _ := strings.Cut(string(readFile(name)), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 15 {
			continue
		}
		times := fields[11:13] // of the process itself
		if filepath.Base(filepath.Dir(name)) == postmaster {
			times = fields[11:15] // including ended child processes
		} else if fields[1] != postmaster {
			continue
		}
		for _, ticks := range times {
			n, _ := strconv.Atoi(ticks)
			used += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return used
}

func readFile(name string) []byte {
	data, _ := os.ReadFile(name)
	return data
}

// Kill ends the server as a power cut would: kill -9 of all its processes.
func (c *Cluster) Kill() {
	killGroup(c.server.Process)
	c.wait()
}

// Stop ends the server and removes the cluster.
func (c *Cluster) Stop() {
	c.Kill()
	_ = os.RemoveAll(c.dir)
}

func (c *Cluster) wait() {
	_ = c.alive.Close()
	_ = c.server.Wait()
}
