package gossip

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// keyPoll is how often a file of keys is read again.
	keyPoll = 5 * time.Second
	// maxKeys of a file, each of which is tried on what comes in.
	maxKeys = 8
	// maxKeyFileBytes is the largest file of keys.
	maxKeyFileBytes = 4 << 10
)

// readKeys reads keys of 16, 24 or 32 bytes in base64, one on a line. The first
// encrypts; all are tried on what comes in.
func readKeys(path string) (keys [][]byte, err error) {
	content, err := os.ReadFile(path)
	if err == nil && len(content) > maxKeyFileBytes {
		err = fmt.Errorf("%s: it has over %d bytes", path, maxKeyFileBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	for i, line := range strings.Split(string(content), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err == nil {
			err = memberlist.ValidateKey(key)
		}
		if err != nil {
			return nil, fmt.Errorf("gossip: %s, line %d: want a key of 16, 24 or 32 bytes in base64, as openssl rand -base64 32 prints", path, i+1)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, fmt.Errorf("gossip: %s: it has %d keys, want 1 to %d", path, len(keys), maxKeys)
	}
	return keys, nil
}

// rekey adds keys to a ring and encrypts with the first. It takes none off, as that
// would be a data race within memberlist.
func rekey(ring *memberlist.Keyring, keys [][]byte) error {
	for _, key := range keys {
		if err := ring.AddKey(key); err != nil {
			return err
		}
	}
	return ring.UseKey(keys[0])
}

// followKeys reads the file again until the member leaves, and takes keys that are
// new. A file that is wrong changes nothing.
func (m *Member) followKeys(ring *memberlist.Keyring) {
	ticker := time.NewTicker(keyPoll)
	defer ticker.Stop()
	said := ""
	for {
		select {
		case <-ticker.C:
		case <-m.ctx.Done():
			return
		}
		keys, err := readKeys(m.options.KeyFile)
		if err == nil {
			err = rekey(ring, keys)
		}
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			m.options.Logger.Warn("the old keys stay", "error", err)
		}
	}
}
