package credentials

import (
	"fmt"
	"log/slog"
	"strings"

	"docstore/boxcarrpc"
)

// Everything is the name that stands for all resources, or for all identified clients, in a
// file of permissions.
const Everything = "*"

// maxPermissions bounds the lines of a file of permissions.
const maxPermissions = 16 << 10

// Access has the permissions of clients: which client may use which resources, such as
// collections.
type Access struct {
	file *fromFiles[permissions]
}

// permissions are the resources of each client, by the name of its identity.
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

// Allows reports whether the file permits the identity to use a resource. A client that did
// not authenticate may use none. The resource Everything is permitted to clients that may
// use all.
func (a *Access) Allows(identity boxcarrpc.Identity, resource string) bool {
	if !identity.Authenticated() {
		return false
	}
	permitted := a.file.get()
	for _, client := range []string{identity.Name, Everything} {
		if resources := permitted[client]; resources[Everything] || resources[resource] {
			return true
		}
	}
	return false
}

// readPermissions reads lines of the name of a client and the names of resources.
func readPermissions(path string) (permissions, error) {
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	found := permissions{}
	for i, line := range strings.Split(string(content), "\n") {
		if isComment(line) {
			continue
		}
		fail := func(format string, args ...any) (permissions, error) {
			return nil, fmt.Errorf("%s: line %d: %s", path, i+1, fmt.Sprintf(format, args...))
		}
		client, rest, err := cutName(line)
		resources := strings.Fields(rest)
		switch {
		case err != nil:
			return fail("%v", err)
		case len(resources) == 0:
			return fail("%q has no collections; name them, or write %s for all", client, Everything)
		case found[client] != nil:
			return fail("%q has permissions in an earlier line; write one line for each client", client)
		case len(found) >= maxPermissions:
			return fail("more than %d clients", maxPermissions)
		}
		found[client] = make(map[string]bool, len(resources))
		for _, resource := range resources {
			found[client][resource] = true
		}
	}
	return found, nil
}
