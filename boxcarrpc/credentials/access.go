package credentials

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
)

// Everything is the name that stands for all resources, or for all identified clients, in a
// file of permissions.
const Everything = "*"

// maxPermissions bounds the lines of a file of permissions.
const maxPermissions = 16 << 10

// Access has the permissions of clients: which identity may use which resources, such as
// collections.
type Access struct {
	file *fromFiles[permissions]
}

// permissions are the resources of each identity.
type permissions map[string]map[string]bool

// OpenAccess reads a file of permissions. It is read again when it changes: the permissions
// of later requests are the new ones. If the file is missing or malformed, the previous ones
// stay in use. Changes and failures are logged to log, which may be nil.
func OpenAccess(path string, log *slog.Logger) (*Access, error) {
	file, err := newFromFiles(log, func() (permissions, error) { return readPermissions(path) }, path)
	if err != nil {
		return nil, err
	}
	file.describe = func(p permissions) string { return fmt.Sprintf("permissions of %d clients", len(p)) }
	return &Access{file}, nil
}

// Allows reports whether the file permits the identity to use a resource. An empty identity,
// of a client that did not authenticate, may use none. The resource Everything is permitted
// to clients that may use all.
func (a *Access) Allows(identity, resource string) bool {
	if identity == "" {
		return false
	}
	permitted := a.file.get()
	for _, client := range []string{identity, Everything} {
		if resources := permitted[client]; resources[Everything] || resources[resource] {
			return true
		}
	}
	return false
}

// readPermissions reads lines of an identity and the names of resources.
func readPermissions(path string) (permissions, error) {
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	found := permissions{}
	for i, line := range bytes.Split(content, []byte("\n")) {
		fields := strings.Fields(string(line))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		fail := func(format string, args ...any) (permissions, error) {
			return nil, fmt.Errorf("%s: line %d: %s", path, i+1, fmt.Sprintf(format, args...))
		}
		switch identity := fields[0]; {
		case len(fields) == 1:
			return fail("%q has no collections; name them, or write %s for all", identity, Everything)
		case found[identity] != nil:
			return fail("%q has permissions in an earlier line; write one line for each client", identity)
		case len(found) >= maxPermissions:
			return fail("more than %d clients", maxPermissions)
		default:
			found[identity] = make(map[string]bool, len(fields)-1)
			for _, resource := range fields[1:] {
				found[identity][resource] = true
			}
		}
	}
	return found, nil
}
