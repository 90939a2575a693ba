package simulation_test

import (
	"net"
	"sync"
)

// An uplink holds the connections of a process to the receivers. They are closed when the process
// dies.
type uplink struct {
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

// add adds a connection, or closes it if the process is dead.
func (u *uplink) add(conn net.Conn) net.Conn {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.dead {
		_ = conn.Close()
	}
	u.conns = append(u.conns, conn)
	return conn
}

func (u *uplink) cut() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dead = true
	for _, conn := range u.conns {
		_ = conn.Close()
	}
}
