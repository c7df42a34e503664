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
	// keyPoll is the interval at which a key file is read again.
	keyPoll = 5 * time.Second
	// maxKeys is the maximum number of keys in a file. Each may be tried on a received
	// message.
	maxKeys = 8
	// maxKeyFileBytes is the maximum size of a key file.
	maxKeyFileBytes = 4 << 10
)

// readKeys reads a key file: see Options.KeyFile.
func readKeys(path string) (keys [][]byte, err error) {
	content, err := os.ReadFile(path)
	if err == nil && len(content) > maxKeyFileBytes {
		err = fmt.Errorf("%s: more than %d bytes", path, maxKeyFileBytes)
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
			return nil, fmt.Errorf("gossip: %s: line %d: want a key of 16, 24 or 32 bytes in base64, as openssl rand -base64 32 prints", path, i+1)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, fmt.Errorf("gossip: %s: %d keys: must be 1 to %d", path, len(keys), maxKeys)
	}
	return keys, nil
}

// rekey adds keys to a ring and makes the first the encryption key. It does not remove
// keys: memberlist has a data race there.
func rekey(ring *memberlist.Keyring, keys [][]byte) error {
	for _, key := range keys {
		if err := ring.AddKey(key); err != nil {
			return err
		}
	}
	return ring.UseKey(keys[0])
}

// followKeys reads the key file periodically and adds new keys, until the member leaves.
// It ignores an invalid file.
func (m *Member) followKeys(ring *memberlist.Keyring) {
	ticker := time.NewTicker(keyPoll)
	defer ticker.Stop()
	logged := ""
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
			logged = ""
		case err.Error() != logged:
			logged = err.Error()
			m.options.Logger.Warn("cannot read the key file; the previous keys stay in use", "error", err)
		}
	}
}
