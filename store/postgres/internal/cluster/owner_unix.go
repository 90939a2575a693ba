//go:build unix

package cluster

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// An owner is the user that runs the server; zero means the user of this process.
type owner struct{ *syscall.Credential }

// chooseOwner gives the directory to a user that may run the server.
func (c *Cluster) chooseOwner() error {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err == nil && err2 == nil {
			c.owner = owner{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
			return os.Chown(c.dir, int(uid), int(gid))
		}
	}
	return errors.New("PostgreSQL does not run as root, and neither user postgres nor user nobody exists")
}

// group prepares a command to run as the owner, in a new process group.
func (o owner) group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: o.Credential, Setpgid: true}
}

// killGroup kills a process and its process group.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
