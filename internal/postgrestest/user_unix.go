//go:build unix

package postgrestest

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// The signals that shut down the server.
var (
	immediate os.Signal = syscall.SIGQUIT
	fast      os.Signal = syscall.SIGINT
)

// serverUser returns the user that runs the server instead of root: postgres, which the package
// of Debian makes, or the one without rights.
func serverUser() (uid, gid int) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil {
			return uid, gid
		}
	}
	return os.Getuid(), os.Getgid()
}

func giveAway(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid := serverUser()
	return os.Chown(dir, uid, gid)
}

func dropPrivileges(c *exec.Cmd) {
	if os.Getuid() != 0 {
		return
	}
	uid, gid := serverUser()
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
