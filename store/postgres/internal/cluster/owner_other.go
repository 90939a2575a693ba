//go:build !unix

package cluster

import (
	"os"
	"os/exec"
)

// The server requires Unix. On other systems it does not start, and tests are skipped.
type owner struct{}

func (c *Cluster) chooseOwner() error { return nil }

func (owner) group(*exec.Cmd) {}

func killGroup(p *os.Process) { _ = p.Kill() }
